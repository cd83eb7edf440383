//! What the doctor looks for, in words: a finding of each kind, also of those that nothing is to be said of now.

use api::view::Check;

/// Codes of findings, and what they say: the table of docs/reference/cli.md without its links.
#[rustfmt::skip]
const CHECKS: &[(&str, &str)] = &[
    ("lun-withheld", "a LUN is not served, because its serial number and NAA designator are not known"),
    ("reservations-lost",
        "the reservations of a LUN cannot be read, so it refuses every command that they could forbid"),
    ("state-damaged", "a file of the state directory is damaged"),
    ("state-foreign", "the state directory has identities, but of no configured LUN; is it the right directory?"),
    ("state-conflict",
        "another program has saved the state of a LUN, so its reservations and saved mode pages cannot be \
            changed"),
    ("reservation-stranded",
        "commands meet the reservation of initiators that have no session; it ends 5 minutes after the last such command"),
    ("state-unwritable", "the state directory cannot be written, has hardly any room left, or is gone"),
    ("hyperscsi-key-renewed", "the key of HyperSCSI in the state directory was damaged, so there is a new one"),
    ("hyperscsi-key-unkept", "the key of HyperSCSI cannot be kept in the state directory"),
    ("administration", "the tokens or the addresses of the administration cannot be used"),
    ("flush-failed", "a store could not flush: data may be lost"),
    ("store-lost",
        "the server, cluster, handler or device that has the data of a LUN cannot be reached: commands wait, then end \
            with NOT READY"),
    ("store-error",
        "commands fail because of the store of a LUN, with the cause; for no space it ends when there is space \
            again, for other causes 5 minutes after the last failure"),
    ("log-lost",
        "the log device of a LUN is lost or that of another disk: the LUN is not served until an \
            administrator decides"),
    ("medium-changed",
        "what is at the place of a store is not what was served: the LUN is not served until that is back, or an \
            administrator accepts what is there (tarn lun adopt)"),
    ("store-unopened", "the store of a LUN cannot be opened: the LUN is not served; Tarn tries every 10 s"),
    ("medium-unmarked",
        "a store is recognised by path and size only: another one at its path would not be noticed"),
    ("log-failed", "a log device is not used any more, because it failed"),
    ("quota-soft", "disks take as much of a quota as its soft says"),
    ("quota-exceeded", "disks have more bytes together than a quota's provisioned says"),
    ("quota-full", "disks take all of a quota: writes to blocks without space fail"),
    ("store-stuck", "a store does not give a request back that was to end; it ends when the store does"),
    ("store-slow", "commands waited for the store for longer than slow_command_ms, within 5 minutes"),
    ("store-short", "a store has become smaller while it is served: what was behind its end is lost"),
    ("disc-cut", "the file of a disc is no multiple of 2048 bytes: the rest is not served"),
    ("space", "a file system is nearly full, and thin files on it may still grow beyond what is left"),
    ("file-system", "a file system with stores does not answer"),
    ("snapshot-missed", "the schedule of a LUN could not take a snapshot; the message says why"),
    ("file-replaced",
        "the path of a LUN names another file than the one that is open, or none: what initiators write is lost \
            at the end; or the name of its image leads to another image, or to none"),
    ("file-invalid", "the configuration file cannot be read or breaks a rule: Tarn would not start with it"),
    ("file-edited", "the configuration file was changed by hand and not applied"),
    ("restart-pending", "keys of the configuration take effect when Tarn starts again"),
    ("config", "the configuration is legal, but probably a mistake"),
    ("change-unsettled", "a change is in force, and part of it still waits for stores or sessions"),
    ("notify-failed", "a web or mail server of [[notify]] does not take events; they wait, and are sent again"),
    ("guessed-secret", "many logins of one user from one address had no right proof of the secret within the last hour"),
    ("certificate-expires", "a certificate of the administration or of a server of NBD is valid for 30 more days at most"),
    ("certificate-last-week", "the same, for 7 more days at most"),
    ("certificate-expired", "the same, no longer: clients refuse it"),
    ("interface", "an interface that groups of HyperSCSI are on is gone, down, or has an MTU of less than 1280"),
    ("unanswered", "TCP retransmits the same data again and again: the host is gone, or a switch drops jumbo frames"),
    ("retransmissions", "TCP retransmits many segments: the network loses some"),
    ("frames-lost", "many frames of HyperSCSI are sent again: the network loses some"),
    ("frames-corrupt", "frames of HyperSCSI arrive with other bits than were sent"),
    ("cores-busy", "every core is busy all the time"),
    ("one-session",
        "one session keeps its core busy while other cores are idle; a session cannot move to another core"),
    ("core-busy", "several sessions keep one core busy while other cores are idle"),
    ("buffers-short", "commands waited for memory"),
    ("strangers", "logins or discovery sessions were refused or closed at a limit"),
    ("little-memory", "pools are smaller than the default, because a control group or the machine has little memory"),
    ("window-full", "an initiator has the maximum number of commands under way"),
    ("receive-window", "data waited for an initiator that receives too slowly or has small receive buffers"),
    ("send-buffer", "data waited because the send buffer of a connection was full"),
    ("mtu", "segments to an initiator are smaller than the MTU of this side allows"),
    ("write-cache", "writes wait for the medium and are slow"),
    ("descriptors", "the process may open fewer files than sessions_max with connections_per_session_max each needs"),
    ("socket-buffers", "the kernel gives connections small buffers"),
    ("violations", "an initiator broke the protocol"),
    ("digests", "data digests are on, which costs processor time"),
    ("clock", "the clock was set while Tarn was running"),
    ("trace", "a session or an initiator is still traced; stop the trace if nobody needs it"),
];

/// All of them.
pub(crate) fn checks() -> Vec<Check> {
    let check = |&(code, finding): &(&str, &str)| Check {
        code: code.to_owned(),
        finding: finding.to_owned(),
    };
    CHECKS.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/reference/cli.md");

    /// Words without marks of the document and without punctuation, which links leave behind.
    fn words(text: &str) -> Vec<String> {
        let text = text.replace(['`', '(', ')', ';', ':', ',', '.'], " ");
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_checks_are_those_of_the_document() {
        let section = DOCUMENT.split("## What the doctor finds").nth(1).unwrap();
        let rows = section.split("\n### ").next().unwrap().lines();
        let rows: Vec<(&str, &str)> = rows
            .filter_map(|row| {
                row.strip_prefix("| `")?
                    .strip_suffix(" |")?
                    .split_once("` | ")
            })
            .collect();
        let codes: Vec<&str> = rows.iter().map(|(code, _)| *code).collect();
        assert_eq!(
            codes,
            CHECKS.iter().map(|(code, _)| *code).collect::<Vec<_>>()
        );
        for ((code, row), (_, text)) in rows.iter().zip(CHECKS) {
            assert!(words(row).starts_with(&words(text)), "{code}: {row}");
        }
    }

    #[test]
    fn every_code_of_a_rule_is_a_check() {
        for source in [
            include_str!("document.rs"),
            include_str!("network.rs"),
            include_str!("reservations.rs"),
            include_str!("service.rs"),
            include_str!("space.rs"),
            include_str!("stores.rs"),
            include_str!("../expiry.rs"),
            include_str!("../state/troubles.rs"),
        ] {
            let source = source.split("#[cfg(test)]").next().unwrap();
            // A text in quotes that looks like a code: words of small letters with hyphens between them.
            let quoted = source.split('"').skip(1).step_by(2);
            let is_code = |text: &&str| {
                text.contains('-')
                    && text
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            };
            for code in quoted.filter(is_code) {
                assert!(CHECKS.iter().any(|(known, _)| *known == code), "{code}");
            }
        }
    }
}
