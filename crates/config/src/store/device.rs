//! The place of a HyperSCSI device: a group, the device, and how servers of the group are reached.

use std::path::{Path, PathBuf};

use super::escape::{Escapes, escape, unescape};
use super::export::{host_port, option_of_path};
use crate::address::parse_interface;
use crate::{HYPERSCSI_PORT, HostPort};

/// Longest name of a group, a device, a server or a user in bytes.
const NAME_BYTES_MAX: usize = 64;
/// What has a meaning of its own in a name.
const IN_NAME: Escapes = &[('%', "25"), ('/', "2F"), ('?', "3F")];
/// The same in a name that is the value of an option.
const IN_OPTION: Escapes = &[('%', "25"), ('&', "26")];

/// A device of a group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupDevice {
    group: String,
    device: String,
    server: Option<String>,
    udp: Option<HostPort>,
    interface: Option<String>,
    /// What distinguishes one device from another, in its one form.
    text: String,
    /// The file with the password; `None`: the group has none.
    pub password_file: Option<PathBuf>,
    /// Whose password it is, if it is not that of the group.
    pub user: Option<String>,
    /// The least level of protection; `None`: what the server asks for.
    pub level: Option<String>,
}

impl GroupDevice {
    /// Reads `//GROUP/DEVICE`, or gives what is wrong with it.
    pub(super) fn parse(place: &str) -> Result<Self, &'static str> {
        let rest = place
            .strip_prefix("//")
            .ok_or("has no // before its group")?;
        let (group, device) = rest.split_once('/').ok_or("names no device")?;
        let names = [group, device].map(|name| unescape(name, IN_NAME));
        if names.iter().any(|name| !is_name(name)) {
            return Err(
                "has a name that is empty, longer than 64 bytes, or has control characters",
            );
        }
        let [group, device] = names;
        let mut found = Self {
            group,
            device,
            ..Self::default()
        };
        found.set_text();
        Ok(found)
    }

    /// The carrier is in the text, too: groups of two networks may have one name.
    fn set_text(&mut self) {
        let options = self
            .identity()
            .map(|(word, value)| format!("{word}={value}"));
        let options: Vec<String> = options.collect();
        let place = self.before_options();
        self.text = match options.is_empty() {
            true => place,
            false => format!("{place}?{}", options.join("&")),
        };
    }

    fn identity(&self) -> impl Iterator<Item = (&'static str, String)> {
        let server = self.server_option().map(|server| ("server", server));
        let udp = self.udp_option().map(|udp| ("udp", udp));
        let interface = self.interface_option().map(|name| ("interface", name));
        server.into_iter().chain(udp).chain(interface)
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// What its server calls it, or its place in the table of the server.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The name of the server, if several have such a device.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Where servers are asked, over UDP.
    pub const fn udp(&self) -> Option<&HostPort> {
        self.udp.as_ref()
    }

    /// The interface whose frames of Ethernet reach servers.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// All of that in its one form.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What stands before the question mark.
    pub(super) fn before_options(&self) -> String {
        let [group, device] = [&self.group, &self.device].map(|name| escape(name, IN_NAME));
        format!("//{group}/{device}")
    }

    /// The server as the value of an option.
    pub(super) fn server_option(&self) -> Option<String> {
        self.server.as_deref().map(|name| escape(name, IN_OPTION))
    }

    /// Where servers are asked as the value of an option.
    pub(super) fn udp_option(&self) -> Option<String> {
        self.udp.as_ref().map(HostPort::to_string)
    }

    /// The interface as the value of an option.
    pub(super) fn interface_option(&self) -> Option<String> {
        let name = self.interface.as_deref()?;
        Some(escape(name, IN_OPTION))
    }

    /// The file of the password as the value of an option.
    pub(super) fn password_option(&self) -> Option<String> {
        self.password_file.as_deref().map(option_of_path)
    }

    /// Takes a server. False where that is no name.
    pub(super) fn set_server(&mut self, value: &str) -> bool {
        let name = unescape(value, IN_OPTION);
        let is_right = is_name(&name);
        self.server = Some(name);
        self.set_text();
        is_right
    }

    /// Takes the address at which servers are asked. False where that is none.
    pub(super) fn set_udp(&mut self, value: &str) -> bool {
        let udp = host_port(value, HYPERSCSI_PORT).ok();
        let is_right = udp.is_some();
        self.udp = udp;
        self.set_text();
        is_right
    }

    /// Takes the name of an interface. False where it is none.
    pub(super) fn set_interface(&mut self, value: &str) -> bool {
        let name = parse_interface(&unescape(value, IN_OPTION)).ok();
        let is_right = name.is_some();
        self.interface = name;
        self.set_text();
        is_right
    }

    /// How it is reached, as options.
    pub(super) fn options(&self) -> String {
        let password = self.password_option().map(|file| ("password_file", file));
        let user = self.user.clone().map(|user| ("user", user));
        let all = self.identity().chain(password).chain(user);
        let all: Vec<String> = all.map(|(word, value)| format!("{word}={value}")).collect();
        all.join("&")
    }

    /// Makes a relative path of the password one below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        if let Some(file) = &mut self.password_file {
            *file = directory.join(&file);
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}
