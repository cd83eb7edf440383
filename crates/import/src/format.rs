//! The formats, by name and by what a text looks like.

use crate::{ReadError, Source, source};

/// A configuration of another target.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// `targets.conf` of tgt, as `tgt-admin --dump` writes it too.
    Tgt,
    /// What `tgtadm --op show --mode target` prints.
    TgtShow,
    /// `saveconfig.json` of LIO.
    Lio,
    /// `scst.conf` of SCST.
    Scst,
    /// `ietd.conf` of the iSCSI Enterprise Target, with `initiators.allow` and `targets.allow`.
    Iet,
    /// `istgt.conf`, with `auth.conf`.
    Istgt,
    /// `ctl.conf` of FreeBSD.
    Ctl,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Tgt,
        Self::TgtShow,
        Self::Lio,
        Self::Scst,
        Self::Iet,
        Self::Istgt,
        Self::Ctl,
    ];

    /// The word of the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tgt => "tgt",
            Self::TgtShow => "tgt-show",
            Self::Lio => "lio",
            Self::Scst => "scst",
            Self::Iet => "iet",
            Self::Istgt => "istgt",
            Self::Ctl => "ctl",
        }
    }

    /// The format of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// What the format is, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Tgt => "targets.conf of tgt",
            Self::TgtShow => "tgtadm --op show --mode target",
            Self::Lio => "saveconfig.json of LIO",
            Self::Scst => "scst.conf of SCST",
            Self::Iet => "ietd.conf of IET",
            Self::Istgt => "istgt.conf",
            Self::Ctl => "ctl.conf of FreeBSD",
        }
    }

    /// The format that the texts look like.
    ///
    /// # Errors
    ///
    /// [`ReadError::FormatUnknown`].
    pub fn detect(sources: &[Source<'_>]) -> Result<Self, ReadError> {
        let detected = sources.iter().find_map(|source| detect_text(source.text));
        detected.ok_or_else(|| ReadError::FormatUnknown {
            name: source::first_name(sources),
        })
    }
}

/// What begins a line of `ctl.conf`, and no line of another format with braces.
#[rustfmt::skip]
const CTL_KEYS: &[&str] = &[
    "auth-group", "debug", "isns-period", "isns-server", "isns-timeout", "lun", "maxproc", "pidfile", "portal-group",
    "target", "timeout",
];

/// The first line that no other format could have decides.
fn detect_text(text: &str) -> Option<Format> {
    if text.trim_start().starts_with('{') {
        return Some(Format::Lio);
    }
    // Line ends mean nothing to ctld: a brace may be anywhere.
    let has_braces = text.contains('{');
    text.lines().find_map(|line| {
        let line = line.trim_start();
        let word = line.split_whitespace().next().unwrap_or_default();
        let second = line.split_whitespace().nth(1).unwrap_or_default();
        let is_any = |words: &[&str]| words.contains(&word);
        if line.starts_with("<target") || is_any(&["default-driver", "control-port"]) {
            Some(Format::Tgt)
        } else if word == "Target" && second.ends_with(':') {
            Some(Format::TgtShow)
        } else if is_any(&["HANDLER", "TARGET_DRIVER"]) {
            Some(Format::Scst)
        } else if line.starts_with('[') {
            Some(Format::Istgt)
        } else if is_any(CTL_KEYS) && has_braces {
            Some(Format::Ctl)
        } else if word.eq_ignore_ascii_case("target") && !second.is_empty() {
            Some(Format::Iet)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_tells_its_format() {
        for (text, format) in [
            ("# x\ndefault-driver iscsi\n", Some(Format::Tgt)),
            ("<target iqn.x>\n", Some(Format::Tgt)),
            ("Target 1: iqn.x\n", Some(Format::TgtShow)),
            ("\n {\"targets\": []}", Some(Format::Lio)),
            ("HANDLER vdisk_fileio {\n", Some(Format::Scst)),
            ("TARGET_DRIVER iscsi {\n", Some(Format::Scst)),
            ("IncomingUser a b\nTarget iqn.x\n", Some(Format::Iet)),
            ("# x\n[Global]\n", Some(Format::Istgt)),
            ("pidfile /x\nportal-group pg0 {\n", Some(Format::Ctl)),
            ("target iqn.x {\n", Some(Format::Ctl)),
            ("target iqn.x\n{\n", Some(Format::Ctl)),
            ("debug 1 portal-group p { }", Some(Format::Ctl)),
            ("target iqn.x\n", Some(Format::Iet)),
            ("", None),
            ("hello\n", None),
        ] {
            let source = Source { name: "x", text };
            assert_eq!(Format::detect(&[source]).ok(), format, "{text:?}");
        }
    }

    #[test]
    fn every_format_has_a_word_of_its_own() {
        for format in Format::ALL {
            assert_eq!(Format::parse(format.as_str()), Some(format));
        }
        assert_eq!(Format::parse("lvm"), None);
    }
}
