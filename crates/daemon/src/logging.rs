//! Logs: events of `tracing` to the standard error output.

mod lines;

use std::io;
use std::sync::Arc;

use config::LogLevel;
use tracing_subscriber::EnvFilter;

use self::lines::{LastLines, Lines, Writer};
use crate::{Environment, StartError};

/// Which events are logged. Checked: it is a filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFilter {
    directives: String,
    shows_targets: bool,
    /// Neither the flag nor the variable has chosen, so a change of the file does.
    follows_file: bool,
}

impl LogFilter {
    /// Chooses among the flag, the variable, the file and the default, in this order.
    ///
    /// The variable takes the words of the flag, or the directives of `tracing`, such as
    /// `info,iscsi=trace`.
    ///
    /// # Errors
    ///
    /// The variable is no filter.
    pub fn choose(
        flag: Option<LogLevel>,
        environment: &Environment,
        file: Option<LogLevel>,
    ) -> Result<Self, StartError> {
        let variable = environment.log.as_deref().filter(|text| !text.is_empty());
        match (flag, variable) {
            (None, Some(text)) => {
                let _checked =
                    EnvFilter::try_new(text).map_err(|source| StartError::LogFilter {
                        text: text.to_owned(),
                        source,
                    })?;
                Ok(Self {
                    directives: text.to_owned(),
                    shows_targets: text.contains("debug") || text.contains("trace"),
                    follows_file: false,
                })
            }
            (flag, _) => Ok(Self {
                follows_file: flag.is_none(),
                ..Self::of_level(flag.or(file).unwrap_or(LogLevel::Info))
            }),
        }
    }

    fn of_level(level: LogLevel) -> Self {
        Self {
            directives: level.as_str().to_owned(),
            shows_targets: level >= LogLevel::Debug,
            follows_file: false,
        }
    }
}

/// The log of the process.
#[derive(Debug)]
pub struct Log {
    lines: Arc<Lines>,
    switch: LogSwitch,
}

/// Changes how much is logged while the process runs. Whether lines name modules stays as it was at the start.
#[derive(Clone)]
pub(crate) struct LogSwitch(Arc<dyn Fn(LogLevel) + Send + Sync>);

impl std::fmt::Debug for LogSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogSwitch")
    }
}

impl LogSwitch {
    /// As the configuration says; `None` is the default.
    pub(crate) fn set(&self, level: Option<LogLevel>) {
        (self.0)(level.unwrap_or(LogLevel::Info));
    }
}

impl Log {
    /// From now on, no thread that logs waits for the reader: lines that are not read in time are
    /// lost, and counted. Before, as threads are not yet wanted, they are written at once. The end
    /// of what is returned waits a moment for the last lines.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub(crate) fn begin(&self) -> io::Result<LastLines> {
        self.lines.begin(io::stderr())
    }

    /// What changes how much is logged.
    pub(crate) fn switch(&self) -> LogSwitch {
        self.switch.clone()
    }
}

/// Starts logging for the whole process.
///
/// # Errors
///
/// Logging was started before.
pub fn start(filter: &LogFilter) -> anyhow::Result<Log> {
    let lines = Arc::<Lines>::default();
    let kept = Arc::clone(&lines);
    let log = tracing_subscriber::fmt()
        .compact()
        .with_writer(move || Writer(Arc::clone(&lines)))
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(filter.shows_targets)
        .with_env_filter(EnvFilter::try_new(&filter.directives)?)
        .with_filter_reloading();
    let (handle, follows_file) = (log.reload_handle(), filter.follows_file);
    let set = move |level: LogLevel| {
        if !follows_file {
            return;
        }
        let filter = EnvFilter::new(level.as_str());
        if let Err(error) = handle.reload(filter) {
            tracing::error!(%error, "how much is logged stays as it was");
        }
    };
    log.try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    Ok(Log {
        lines: kept,
        switch: LogSwitch(Arc::new(set)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        flag: Option<LogLevel>,
        variable: Option<&str>,
        file: Option<LogLevel>,
    ) -> Result<LogFilter, StartError> {
        let environment = Environment {
            log: variable.map(str::to_owned),
            ..Environment::default()
        };
        LogFilter::choose(flag, &environment, file)
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_the_file() {
        #[rustfmt::skip]
        let cases = [
            (None, None, None, "info"),
            (None, None, Some(LogLevel::Warn), "warn"),
            (None, Some(""), Some(LogLevel::Warn), "warn"),
            (None, Some("info,iscsi=trace"), Some(LogLevel::Warn), "info,iscsi=trace"),
            (Some(LogLevel::Error), Some("debug"), Some(LogLevel::Warn), "error"),
        ];
        for (flag, variable, file, directives) in cases {
            let filter = choose(flag, variable, file).unwrap();
            assert_eq!(filter.directives, directives);
        }
    }

    #[test]
    fn modules_are_named_from_debug_on() {
        for (level, expected) in [
            (LogLevel::Off, false),
            (LogLevel::Info, false),
            (LogLevel::Debug, true),
            (LogLevel::Trace, true),
        ] {
            assert_eq!(
                choose(Some(level), None, None).unwrap().shows_targets,
                expected
            );
        }
    }

    #[test]
    fn a_variable_that_is_no_filter_is_refused() {
        assert!(matches!(
            choose(None, Some("iscsi=loud"), None),
            Err(StartError::LogFilter { .. })
        ));
    }
}
