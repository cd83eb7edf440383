//! The place of a disk of an iSCSI target: where the target is, its name, and the number of the logical unit.

use std::path::{Path, PathBuf};

use super::escape::{Escapes, escape, unescape};
use super::export::{host_port, option_of_path};
use crate::{HostPort, ISCSI_PORT, IscsiName};

/// What a LUN can be numbered with.
///
/// Spec: SAM-5 section 4.7.7: flat space addressing has 14 bits.
const LUN_MAX: u16 = 16_383;
/// Longest name of a user in bytes.
const NAME_BYTES_MAX: usize = 64;
/// What has a meaning of its own in the value of an option.
const IN_OPTION: Escapes = &[('%', "25"), ('&', "26")];

/// A logical unit of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FarLun {
    portal: HostPort,
    target: IscsiName,
    lun: u16,
    /// All of that in its one form.
    text: String,
    /// The name of this side; `None`: that of all Tarns.
    pub initiator: Option<IscsiName>,
    /// As whom this side logs in (CHAP).
    pub user: Option<String>,
    /// The file with the secret of that user.
    pub password_file: Option<PathBuf>,
    /// Whom the target has to prove to be.
    pub mutual_user: Option<String>,
    /// The file with the secret of that user.
    pub mutual_password_file: Option<PathBuf>,
}

impl FarLun {
    /// Reads `//HOST[:PORT]/TARGET/LUN`, or gives what is wrong with it.
    pub(super) fn parse(place: &str) -> Result<Self, &'static str> {
        let rest = place
            .strip_prefix("//")
            .ok_or("has no // before its target")?;
        let (authority, rest) = rest.split_once('/').ok_or("names no target")?;
        let (target, lun) = rest.split_once('/').ok_or("names no LUN")?;
        let portal = host_port(authority, ISCSI_PORT)?;
        let target = IscsiName::parse(target).map_err(|_| "has no name of an iSCSI target")?;
        let is_number = lun.len() <= 5 && lun.bytes().all(|byte| byte.is_ascii_digit());
        let number = lun.parse().ok().filter(|lun| is_number && *lun <= LUN_MAX);
        let lun = number.ok_or("has a LUN that is no number from 0 to 16383")?;
        let text = format!("//{portal}/{target}/{lun}");
        Ok(Self {
            portal,
            target,
            lun,
            text,
            initiator: None,
            user: None,
            password_file: None,
            mutual_user: None,
            mutual_password_file: None,
        })
    }

    /// Where the target listens.
    pub const fn portal(&self) -> &HostPort {
        &self.portal
    }

    /// Its name.
    pub const fn target(&self) -> &IscsiName {
        &self.target
    }

    /// The number of the logical unit.
    pub const fn lun(&self) -> u16 {
        self.lun
    }

    /// Portal, target and number in their one form: what stands before the question mark, and what distinguishes one
    /// disk from another as far as is written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The files with secrets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.password_file, &self.mutual_password_file];
        files.into_iter().filter_map(|file| file.as_deref())
    }

    /// What is missing for a login, if something is.
    pub(super) fn incomplete(&self) -> Option<&'static str> {
        let own = (self.user.is_some(), self.password_file.is_some());
        let mutual = (
            self.mutual_user.is_some(),
            self.mutual_password_file.is_some(),
        );
        match (own, mutual) {
            ((true, false) | (false, true), _) => {
                Some("wants both user and password_file, or none")
            }
            (_, (true, false) | (false, true)) => {
                Some("wants both mutual_user and mutual_password_file, or none")
            }
            ((false, false), (true, true)) => Some("wants user where there is mutual_user"),
            _ => None,
        }
    }

    /// The secret of the user as the value of an option.
    pub(super) fn password_option(&self) -> Option<String> {
        self.password_file.as_deref().map(option_of_path)
    }

    /// The secret of the target as the value of an option.
    pub(super) fn mutual_password_option(&self) -> Option<String> {
        self.mutual_password_file.as_deref().map(option_of_path)
    }

    /// The user of the target as the value of an option.
    pub(super) fn mutual_user_option(&self) -> Option<String> {
        let user = self.mutual_user.as_deref()?;
        Some(escape(user, IN_OPTION))
    }

    /// Takes whom the target has to prove to be. False where that is no name.
    pub(super) fn set_mutual_user(&mut self, value: &str) -> bool {
        let user = unescape(value, IN_OPTION);
        let is_right =
            (1..=NAME_BYTES_MAX).contains(&user.len()) && !user.contains(char::is_control);
        self.mutual_user = Some(user);
        is_right
    }

    /// Takes the name of this side. False where it is none.
    pub(super) fn set_initiator(&mut self, value: &str) -> bool {
        self.initiator = IscsiName::parse(value).ok();
        self.initiator.is_some()
    }

    /// How it is logged in at, as options.
    pub(super) fn options(&self) -> String {
        let initiator = self.initiator.as_ref().map(IscsiName::to_string);
        let all = [
            ("user", self.user.clone()),
            ("password_file", self.password_option()),
            ("initiator", initiator),
            ("mutual_user", self.mutual_user_option()),
            ("mutual_password_file", self.mutual_password_option()),
        ];
        let all = all.into_iter();
        let all: Vec<String> = all
            .filter_map(|(word, value)| Some(format!("{word}={}", value?)))
            .collect();
        all.join("&")
    }

    /// Makes relative paths of secrets ones below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        let files = [&mut self.password_file, &mut self.mutual_password_file];
        for file in files.into_iter().flatten() {
            *file = directory.join(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::StoreSpec;
    use std::path::Path;

    const NAME: &str = "iqn.2026-11.example.far:disk";

    #[test]
    fn every_form_of_a_place_has_one_text_and_is_read_again() {
        for (store, text) in [
            (
                format!("iscsi://Host/{NAME}/0"),
                format!("iscsi://host:3260/{NAME}/0"),
            ),
            (
                format!("iscsi://[::1]:7/{NAME}/16383"),
                format!("iscsi://[::1]:7/{NAME}/16383"),
            ),
            (
                "iscsi://h/eui.0123456789ABCDEF/007".to_owned(),
                "iscsi://h:3260/eui.0123456789abcdef/7".to_owned(),
            ),
        ] {
            let spec = StoreSpec::parse(&store).unwrap();
            assert_eq!(spec.at.medium().unwrap().to_string(), text, "{store}");
            assert_eq!(spec.at.to_string(), text, "{store}");
            assert_eq!(StoreSpec::parse(&text).unwrap().at, spec.at, "{store}");
        }
    }

    #[test]
    fn a_device_of_a_target_is_one_with_its_disk() {
        let text = format!("scsi:iscsi://h:3260/{NAME}/1");
        let spec = StoreSpec::parse(&format!("scsi:iscsi://H/{NAME}/01?retry=3")).unwrap();
        assert_eq!(spec.at.to_string(), text);
        assert_eq!(StoreSpec::parse(&text).unwrap().at, spec.at);
        let disk = StoreSpec::parse(&format!("iscsi://h/{NAME}/1")).unwrap();
        assert_eq!(spec.at.medium(), disk.at.medium());
        assert!(disk.is_disk() && !spec.is_disk());
        let local = StoreSpec::parse("scsi:/dev/./sg%3F?retry=0").unwrap();
        let local = local.below(Path::new("/etc"));
        assert_eq!(local.at.local_device(), Some(Path::new("/dev/sg?")));
        assert_eq!(local.at.to_string(), "scsi:/dev/sg%3F");
        assert!(local.at.node().is_none());
        let handler = StoreSpec::parse("handler:./run/x.sock?retry=0").unwrap();
        let handler = handler.below(Path::new("/etc"));
        assert_eq!(handler.at.handler(), Some(Path::new("/etc/run/x.sock")));
        assert_eq!(handler.at.to_string(), "handler:/etc/run/x.sock");
        assert!(handler.at.node().is_none() && handler.at.local_device().is_none());
        assert!(StoreSpec::parse("handler:/a?readonly").is_err());
        assert!(StoreSpec::parse("handler:").is_err());
        let block = StoreSpec::parse("block:/dev/sg%3F").unwrap();
        assert_eq!(local.at.medium(), block.at.medium());
        for (rest, part) in [
            ("/dev/sg1?user=a".to_owned(), "there is no iSCSI target"),
            ("dev/sg1".to_owned(), "does not say where its device is"),
            (
                format!("//h/{NAME}/1"),
                "does not say where its device is; write /dev/NODE or iscsi://HOST",
            ),
            (format!("iscsi://h/{NAME}"), "names no LUN"),
            (
                format!("iscsi://h/{NAME}/1?user=a"),
                "wants both user and password_file",
            ),
            (
                format!("iscsi://h/{NAME}/1?blocksize=4096"),
                "blocks of its own",
            ),
            (
                format!("iscsi://h/{NAME}/1?readonly"),
                "write readonly at the target",
            ),
            (
                format!("iscsi://h/{NAME}/1?removable"),
                "what can be done with its medium",
            ),
        ] {
            let message = StoreSpec::parse(&format!("scsi:{rest}")).unwrap_err();
            let message = message.to_string();
            assert!(message.contains(part), "{rest}: {message}");
        }
    }

    #[test]
    fn every_option_is_kept() {
        let options = "user=alice&password_file=a%26b&initiator=iqn.2026-11.example.near:me&mutual_user=t%26&\
                       mutual_password_file=/m&retry=3&readonly";
        let spec = StoreSpec::parse(&format!("iscsi://h/{NAME}/1?{options}")).unwrap();
        let spec = spec.below(Path::new("/etc/tarn"));
        assert!(spec.read_only);
        assert_eq!(spec.retry_seconds, 3);
        let lun = spec.at.target_lun().unwrap();
        assert_eq!((lun.target().as_str(), lun.lun()), (NAME, 1));
        assert_eq!(lun.portal().to_string(), "h:3260");
        let files: Vec<_> = lun.files().collect();
        assert_eq!(files, [Path::new("/etc/tarn/a&b"), Path::new("/m")]);
        let shown = format!(
            "iscsi://h:3260/{NAME}/1?user=alice&password_file=/etc/tarn/a%26b&initiator=iqn.2026-11.example.near:me&\
             mutual_user=t%26&mutual_password_file=/m"
        );
        assert_eq!(spec.at.to_string(), shown);
        let again = StoreSpec::parse(&spec.to_store(|_, _| true)).unwrap();
        assert_eq!((again.at, again.retry_seconds), (spec.at, 3));
    }

    #[test]
    fn what_is_no_disk_of_a_target_names_the_rule() {
        for (rest, part) in [
            (
                format!("h/{NAME}/0"),
                "has no // before its target; write //HOST[:PORT]/TARGET/LUN after the colon",
            ),
            ("//h".to_owned(), "names no target"),
            (format!("//h/{NAME}"), "names no LUN"),
            ("//h/disk/0".to_owned(), "has no name of an iSCSI target"),
            (
                format!("//h/{NAME}/x"),
                "a LUN that is no number from 0 to 16383",
            ),
            (
                format!("//h/{NAME}/16384"),
                "a LUN that is no number from 0 to 16383",
            ),
            (
                format!("//h/{NAME}/+1"),
                "a LUN that is no number from 0 to 16383",
            ),
            (
                format!("//h:0/{NAME}/1"),
                "a port that is no number from 1 to 65535",
            ),
            (
                format!("//h/{NAME}/0?user=a"),
                "wants both user and password_file",
            ),
            (
                format!("//h/{NAME}/0?password_file=a"),
                "wants both user and password_file",
            ),
            (
                format!("//h/{NAME}/0?user=a&password_file=b&mutual_user=c"),
                "wants both mutual_user and",
            ),
            (
                format!("//h/{NAME}/0?mutual_user=c&mutual_password_file=d"),
                "wants user where there is mutual_user",
            ),
            (
                format!("//h/{NAME}/0?initiator=me"),
                "use the name of an iSCSI initiator",
            ),
            (
                format!("//h/{NAME}/0?size=1M"),
                "the disk brings its own size",
            ),
            (
                format!("//h/{NAME}/0?level=crc"),
                "there is no HyperSCSI group",
            ),
        ] {
            let message = StoreSpec::parse(&format!("iscsi:{rest}")).unwrap_err();
            let message = message.to_string();
            assert!(message.contains(part), "{rest}: {message}");
        }
        let other = StoreSpec::parse("nbd://h?initiator=iqn.2026-11.example:a").unwrap_err();
        assert!(
            other.to_string().contains("there is no iSCSI target"),
            "{other}"
        );
    }
}
