//! The files of each directory, row by row: the one place that says what there is to read, and what
//! can be written.

use std::fmt::Display;
use std::sync::Arc;

use api::edit::{
    Edit, HyperscsiKeys, Keys, LunKeys, NbdKeys, QuotaKeys, StoreKeys, TargetKeys, Thing as Whole,
};
use api::spec;
use api::stats::{Operations, Stats};
use api::view::{
    Hyperscsi, IscsiSession, Lun, Medium, Quota, ReservationNexus, Session, Snapshot, Target,
};

use crate::attribute::{Attribute, Row, Thing, rows};
use crate::call::Call;
use crate::refusal::Refusal;
use crate::view::View;

/// The mount point.
pub(crate) struct Root(pub(crate) Arc<dyn View>);

#[rustfmt::skip]
impl Thing for Root {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::asks("help", "every file of the tree, a line each: path, `r` or `rw`, what is in it", |_| Ok(help())),
        Attribute::asks("status", "the daemon in one look: a line for each value, as `sessions: 4`", |root| status(root.0.as_ref())),
        Attribute::asks("revision", "revision of the configuration that runs", |root| Ok(root.0.document()?.revision.to_string())),
        Attribute::asks("config", "the configuration that runs, as `tarn.toml`", |root| Ok(root.0.document()?.text.clone())),
        Attribute::asks("findings", "what limits or endangers the service, a line each; what `tarn doctor` says", |root| findings(root.0.as_ref())),
        Attribute::asks("last_error", "the last problem of the tree, with its path; empty while there was none", |root| Ok(root.0.last_error())),
    ];
}

#[rustfmt::skip]
impl Thing for Lun {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("id", "the id; writing another one renames the unit", |lun: &Self| lun.spec.id.clone())
            .writes(|lun, text| Ok(Call::edit(Edit::Rename { lun: lun.spec.id.clone(), id: one_line(text)? }))),
        Attribute::shows("store", "where the data lives", |lun| lun.spec.store.clone()),
        Attribute::shows("kind", "`file`, `block`, `memory`, `null`, `nbd`, `rbd` or `cdrom`", |lun| lun.kind.clone()),
        Attribute::shows("type", "`disk`, or `cdrom`: a CD or DVD drive", |lun| lun.device_type.clone()),
        Attribute::shows("size", "size in bytes, 0 of an empty drive; writing a larger one grows the unit, with k, M, G, T if you like", |lun: &Self| lun.size_bytes.to_string())
            .writes(|lun, text| Ok(Call::edit(Edit::Resize { lun: lun.spec.id.clone(), size_bytes: config::parse_size(text.trim())? }))),
        Attribute::shows("block_size", "bytes of a logical block", |lun| lun.block_bytes.to_string()),
        Attribute::shows("readonly", "1 if the store refuses writes, else 0", |lun| flag(lun.readonly)),
        Attribute::shows("cache", "`writeback`, `writethrough` or `direct`; empty where there is nothing to cache", |lun| optional(lun.cache.as_ref())),
        Attribute::shows("thin", "1 if unmapped blocks give their space back, else 0", |lun| flag(lun.thin)),
        Attribute::shows("serial", "unit serial number", |lun| lun.serial.clone()),
        Attribute::shows("naa", "NAA designator, hexadecimal", |lun| lun.naa.clone()),
        Attribute::shows("owner", "whose disk it is, for quotas; an empty line: nobody's", |lun: &Self| optional(lun.spec.owner.as_ref()))
            .writes(|lun, text| Ok(Call::edit(Edit::Set(Keys::Lun(LunKeys::of([&lun.spec.id]).with("owner", one_line(text)?)))))),
        Attribute::shows("medium", "`in` or `out`, empty where it is fixed; writing `out` ejects it, `in` loads it", |lun: &Self| optional(lun.medium.as_ref().map(whereabouts).as_ref()))
            .writes(move_medium),
        Attribute::shows("prevented_by", "initiators that prevent the removal of the medium, a line for each session", |lun| lines(lun.medium.iter().flat_map(|medium| &medium.prevented_by))),
        Attribute::shows("reservations", "who has reserved it: `type`, `holder`, `reserved_by` (RESERVE), `registered`, a line each; empty where nobody is registered", reserved),
        Attribute::shows("shown_by", "a line for each target that shows it: target, LUN, `ro` or `rw`, groups", shown_by),
        Attribute::shows("served_by", "a line for each server of NBD and group of HyperSCSI that serves it: protocol, `ro` or `rw`, name", served_by),
    ];
}

#[rustfmt::skip]
impl Thing for Snapshot {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("taken_ms", "when it was taken, milliseconds since 1970", |snapshot| snapshot.taken_ms.to_string()),
        Attribute::shows("size", "size of the unit then, in bytes", |snapshot| snapshot.size_bytes.to_string()),
        Attribute::shows("path", "the file that has it, or its STORE in its cluster", |snapshot| snapshot.path.clone()),
        Attribute::shows("rollback", "0; writing 1 gives the unit this data back: what was written since is gone, and sessions that see it end first", |_: &Self| flag(false))
            .writes(roll_back),
    ];
}

#[rustfmt::skip]
impl Thing for spec::Store {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("id", "what compositions call it", |store| store.id.clone()),
        Attribute::shows("store", "where the data lives; writing replaces it", |store: &Self| store.store.clone())
            .writes(|store, text| Ok(Call::edit(Edit::Set(Keys::Store(StoreKeys::of([&store.id]).with("store", one_line(text)?)))))),
    ];
}

#[rustfmt::skip]
impl Thing for spec::Nbd {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("place", "the socket or the address", |server| server.place().to_owned()),
        Attribute::shows("mode", "the mode of the file of the socket; an empty line: the default", |server: &Self| optional(server.mode.as_ref()))
            .writes(|server, text| Ok(of_server(keys(server).with("mode", one_line(text)?)))),
        Attribute::shows("luns", "the units that are its exports, a line each; writing replaces all", |server: &Self| lines(&server.luns))
            .writes_list(|server, text| Ok(of_server(keys(server).with("luns", words(text))))),
        Attribute::shows("groups", "the groups of clients that find them, a line each; empty: everyone; writing replaces all", |server: &Self| lines(&server.groups))
            .writes_list(|server, text| Ok(of_server(keys(server).with("groups", words(text))))),
        Attribute::shows("tls", "the files of certificate, key and the ca for clients, a line each; empty: no TLS; writing replaces all", |server: &Self| lines([&server.certificate, &server.key, &server.ca].into_iter().flatten()))
            .writes_list(tls),
    ];
}

#[rustfmt::skip]
impl Thing for Quota {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("name", "what it counts: `owner:NAME` or `pool:PLACE`", |quota| quota.name.clone()),
        Attribute::shows("luns", "the units that it counts, a line each", |quota| lines(&quota.luns)),
        Attribute::shows("provisioned", "the most that their sizes may be together; an empty line: no limit", |quota: &Self| optional(quota.spec.provisioned.as_ref()))
            .writes(|quota, text| Ok(of_quota(keys_of(quota).with("provisioned", one_line(text)?)))),
        Attribute::shows("provisioned_bytes", "how large they are together", |quota| quota.provisioned_bytes.to_string()),
        Attribute::shows("used", "the most that they may take together; an empty line: no limit", |quota: &Self| optional(quota.spec.used.as_ref()))
            .writes(|quota, text| Ok(of_quota(keys_of(quota).with("used", one_line(text)?)))),
        Attribute::shows("used_bytes", "what they were found to take together; empty without `used`", |quota| optional(quota.used_bytes.map(|bytes| bytes.to_string()).as_ref())),
        Attribute::shows("soft", "the part of `used`, in percent, from which on everyone is notified; an empty line: the default", |quota: &Self| optional(quota.spec.soft.map(|soft| soft.to_string()).as_ref()))
            .writes(soft),
        Attribute::shows("space", "`free`; `low`: initiators are notified; `full`: what needs space fails", |quota| quota.space.clone()),
    ];
}

#[rustfmt::skip]
impl Thing for Target {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("name", "TargetName", |target| target.spec.name.clone()),
        Attribute::shows("alias", "TargetAlias; an empty line takes it away", |target: &Self| optional(target.spec.alias.as_ref()))
            .writes(|target, text| Ok(alias(target, one_line(text)?))),
        Attribute::shows("portals", "a line for each portal: address, portal group, the advertised address if it differs", portals),
        Attribute::shows("bound", "where it listens, a line each", |target| lines(&target.bound)),
        Attribute::shows("auth", "CHAP users that may log in, a line each; empty: everyone", |target| lines(&target.spec.auth)),
        Attribute::shows("chap_algorithms", "CHAP algorithms, a line each", |target| lines(target.spec.chap_algorithms.as_deref().unwrap_or_default())),
        Attribute::shows("cold_reset", "`1` if TARGET COLD RESET of an initiator ends the sessions of all, else `0`", |target| flag(target.spec.cold_reset)),
        Attribute::shows("views", "a line for each unit it shows: LUN, id, `ro` or `rw`, groups", views),
    ];
}

#[rustfmt::skip]
impl Thing for Session {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("initiator", "InitiatorName", |session| session.initiator.clone()),
        Attribute::shows("address", "where it comes from", |session| session.address.clone()),
        Attribute::shows("target", "TargetName, `nbd:EXPORT` or `hyperscsi:GROUP`; empty for discovery", |session| optional(session.target.as_ref())),
        Attribute::shows("user", "the CHAP user it proved to be; empty without", |session| optional(session.user.as_ref())),
        Attribute::shows("core", "the core it lives on", |session| session.core.to_string()),
        Attribute::shows("since_ms", "when it began, milliseconds since 1970", |session| session.since_ms.to_string()),
        Attribute::shows("luns", "a line for each unit it sees: LUN, id, `ro` or `rw`", session_luns),
        Attribute::shows("commands", "commands under way", |session| session.commands.to_string()),
        Attribute::shows("window", "commands it may have under way", |session| session.window.to_string()),
        Attribute::shows("transport", "`iscsi`, `nbd` or `hyperscsi`", |session| session.transport.as_str().to_owned()),
        Attribute::shows("tsih", "iSCSI: TSIH, the target's part of the session identifier", |session| of_iscsi(session, |it| it.tsih.to_string())),
        Attribute::shows("isid", "iSCSI: ISID, hexadecimal", |session| of_iscsi(session, |it| it.isid.clone())),
        Attribute::shows("portal_group", "iSCSI: target portal group tag", |session| of_iscsi(session, |it| it.portal_group.to_string())),
        Attribute::shows("connections", "iSCSI: how many it has", |session| of_iscsi(session, |it| it.connections.len().to_string())),
        Attribute::shows("header_digest", "iSCSI: 1 if a connection has header digests, else 0", |session| of_iscsi(session, |it| flag(it.connections.iter().any(|one| one.header_digest)))),
        Attribute::shows("data_digest", "iSCSI: 1 if a connection has data digests, else 0", |session| of_iscsi(session, |it| flag(it.connections.iter().any(|one| one.data_digest)))),
        Attribute::shows("violations", "iSCSI: violations of the protocol by the initiator", |session| of_iscsi(session, |it| it.violations.to_string())),
        Attribute::shows("reinstatements", "iSCSI: how often this initiator port replaced a session of its own", |session| of_iscsi(session, |it| it.reinstatements.to_string())),
        Attribute::shows("server", "NBD: the server that the client reached; HyperSCSI: where the group is served", |session| session.transport.server().unwrap_or_default().to_owned()),
        Attribute::shows("names", "NBD: the names that the client's certificate proves, a line each", |session| lines(session.transport.names())),
        Attribute::shows("end", "0; writing 1 ends the session, and the initiator may log in again", |_: &Self| flag(false))
            .writes(end),
    ];
}

#[rustfmt::skip]
impl Thing for spec::Group {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("initiators", "name patterns, addresses, networks, names at addresses, users and exclusions (`!...`), a line each; writing replaces all", |group: &Self| lines(&group.initiators))
            .writes_list(|group, text| Ok(Call::edit(Edit::Put(Whole::Group(Self { id: group.id.clone(), initiators: words(text) }))))),
    ];
}

#[rustfmt::skip]
impl Thing for spec::User {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("name", "CHAP_N of the initiator", |user| user.name.clone()),
        Attribute::shows("secret_file", "where the secret is; the tree never shows one", |user| optional(user.secret_file.as_ref())),
        Attribute::shows("mutual_name", "CHAP_N of the target; empty without mutual CHAP", |user| optional(user.mutual.as_ref().map(|mutual| &mutual.name))),
    ];
}

#[rustfmt::skip]
impl Thing for Hyperscsi {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("name", "by which clients find it", |group| group.spec.name.clone()),
        Attribute::shows("place", "where it is served: an interface, or `udp:` and an address", |group| group.place.clone()),
        Attribute::shows("user", "the name that clients log in with, if not that of the group; an empty line takes it away", |group: &Self| optional(group.spec.user.as_ref()))
            .writes(|group, text| Ok(of_hyperscsi(group, |keys, text| keys.user = Some(text), one_line(text)?))),
        Attribute::shows("password", "where the password is: `file`, `configuration`, or `none` if clients need none", |group| group.password.clone()),
        Attribute::shows("password_file", "the file of the password; the tree never shows one", |group| optional(group.spec.password_file.as_ref())),
        Attribute::shows("retransmit", "what is sent again after a loss: `selective` or `window`", |group: &Self| optional(group.spec.retransmit.as_ref()))
            .writes(|group, text| Ok(of_hyperscsi(group, |keys, text| keys.retransmit = Some(text), one_line(text)?))),
        Attribute::shows("profile", "what the path is like: `wired` or `wireless`", |group: &Self| optional(group.spec.profile.as_ref()))
            .writes(|group, text| Ok(of_hyperscsi(group, |keys, text| keys.profile = Some(text), one_line(text)?))),
        Attribute::shows("devices", "a line for each device: id of the unit, least level, `ro` or `rw`", devices),
    ];
}

/// What was counted, over all that belongs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    depth: u64,
    read: Operations,
    write: Operations,
    other: Operations,
}

#[rustfmt::skip]
impl Thing for Totals {
    const FILES: &'static [Attribute<Self>] = &[
        Attribute::shows("depth", "commands that wait for something: data, the store, another command", |totals| totals.depth.to_string()),
        Attribute::shows("reads", "commands that read the medium and were answered", |totals| totals.read.count.to_string()),
        Attribute::shows("read_bytes", "bytes they read", |totals| totals.read.bytes.to_string()),
        Attribute::shows("read_errors", "how many were not answered GOOD", |totals| totals.read.errors.to_string()),
        Attribute::shows("read_latency_us", "the sum of their latencies in microseconds", |totals| totals.read.latency_us.to_string()),
        Attribute::shows("writes", "commands that write the medium and were answered", |totals| totals.write.count.to_string()),
        Attribute::shows("write_bytes", "bytes they wrote", |totals| totals.write.bytes.to_string()),
        Attribute::shows("write_errors", "how many were not answered GOOD", |totals| totals.write.errors.to_string()),
        Attribute::shows("write_latency_us", "the sum of their latencies in microseconds", |totals| totals.write.latency_us.to_string()),
        Attribute::shows("others", "all other commands that were answered", |totals| totals.other.count.to_string()),
        Attribute::shows("other_errors", "how many were not answered GOOD", |totals| totals.other.errors.to_string()),
        Attribute::shows("other_latency_us", "the sum of their latencies in microseconds", |totals| totals.other.latency_us.to_string()),
    ];
}

impl Totals {
    /// The sum over units that go by this id.
    pub(crate) fn of_lun(stats: &Stats, id: &str) -> Self {
        Self::sum(stats, |lun, _| lun == id)
    }

    /// The sum over all that this initiator did. Sessions of one initiator are not distinguished.
    pub(crate) fn of_initiator(stats: &Stats, name: &str) -> Self {
        Self::sum(stats, |_, initiator| initiator == name)
    }

    fn sum(stats: &Stats, belongs: impl Fn(&str, &str) -> bool) -> Self {
        let mut totals = Self::default();
        for series in &stats.series {
            if belongs(&series.lun, &series.initiator) {
                totals.depth += u64::from(series.depth);
                add(&mut totals.read, &series.read);
                add(&mut totals.write, &series.write);
                add(&mut totals.other, &series.other);
            }
        }
        totals
    }
}

fn add(sum: &mut Operations, more: &Operations) {
    sum.count = sum.count.saturating_add(more.count);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
    sum.errors = sum.errors.saturating_add(more.errors);
    sum.latency_us = sum.latency_us.saturating_add(more.latency_us);
}

/// All files, as `help` shows them.
pub(crate) fn all() -> Vec<Row> {
    [
        rows::<Root>(""),
        rows::<Lun>("luns/ID/"),
        rows::<Totals>("luns/ID/stats/"),
        rows::<Snapshot>("luns/ID/snapshots/NAME/"),
        rows::<Target>("targets/NAME/"),
        rows::<Session>("sessions/ID/"),
        rows::<Totals>("sessions/ID/stats/"),
        rows::<spec::Group>("groups/ID/"),
        rows::<spec::User>("users/NAME/"),
        rows::<spec::Store>("stores/ID/"),
        rows::<spec::Nbd>("nbd/PLACE/"),
        rows::<Quota>("quotas/NAME/"),
        rows::<Hyperscsi>("hyperscsi/NAME/"),
    ]
    .concat()
}

// How things are written as text.

fn help() -> String {
    lines(all().iter().map(|row| {
        let mode = if row.is_writable { "rw" } else { "r" };
        format!("{:32} {mode:2} {}", row.path, row.about)
    }))
}

fn status(view: &dyn View) -> Result<String, Refusal> {
    let status = view.status()?;
    let config_file = optional(status.config_file.as_ref());
    let rows: [(&str, &dyn Display); 11] = [
        ("version", &status.version),
        ("pid", &status.pid),
        ("started_ms", &status.started_ms),
        ("now_ms", &status.now_ms),
        ("revision", &status.revision),
        ("config_file", &config_file),
        ("state_directory", &status.state_directory),
        ("cores", &status.cores),
        ("luns", &status.luns),
        ("targets", &status.targets),
        ("sessions", &status.sessions),
    ];
    Ok(lines(rows.map(|(name, value)| format!("{name}: {value}"))))
}

fn findings(view: &dyn View) -> Result<String, Refusal> {
    let status = view.status()?;
    Ok(lines(status.findings.iter().map(|finding| {
        let (code, message, remedy) = (&finding.code, &finding.message, &finding.remedy);
        let subject = match finding.subject.as_str() {
            "" => String::new(),
            subject => format!(" {subject}"),
        };
        let line = format!("{code}{subject}: {message}; {remedy}");
        line.replace(char::is_control, " ")
    })))
}

fn reserved(lun: &Lun) -> String {
    let Some(reservations) = &lun.reservations else {
        return String::new();
    };
    let name = |nexus: &Option<ReservationNexus>| nexus.as_ref().map(|one| one.initiator.clone());
    let rows = [
        ("type", reservations.kind.clone()),
        ("holder", name(&reservations.holder)),
        ("reserved_by", name(&reservations.reserved_by)),
        ("registered", Some(reservations.registered.to_string())),
    ];
    let rows = rows.into_iter();
    lines(rows.filter_map(|(name, value)| Some(format!("{name}: {}", value?))))
}

fn shown_by(lun: &Lun) -> String {
    lines(lun.shown_by.iter().map(|path| {
        let view = access(path.readonly, &path.groups);
        format!("{} {} {view}", path.target, path.lun)
    }))
}

fn served_by(lun: &Lun) -> String {
    lines(lun.served_by.iter().map(|service| {
        let view = access(service.readonly, &[]);
        format!("{} {view} {}", service.protocol, service.name)
    }))
}

fn views(target: &Target) -> String {
    lines(target.spec.luns.iter().map(|entry| {
        let view = access(entry.readonly, &entry.groups);
        format!("{} {} {view}", entry.lun, entry.id)
    }))
}

/// What only sessions of iSCSI have; empty for others.
fn of_iscsi(session: &Session, value: impl FnOnce(&IscsiSession) -> String) -> String {
    session.iscsi().map(value).unwrap_or_default()
}

fn session_luns(session: &Session) -> String {
    lines(session.luns.iter().map(|entry| {
        let view = access(entry.readonly, &[]);
        format!("{} {} {view}", entry.lun, entry.id)
    }))
}

fn access(readonly: bool, groups: &[String]) -> String {
    let mut text = if readonly { "ro" } else { "rw" }.to_owned();
    for group in groups {
        text.push(' ');
        text.push_str(group);
    }
    text
}

fn portals(target: &Target) -> String {
    let portals = target.spec.portals.as_deref().unwrap_or_default();
    lines(portals.iter().map(|portal| {
        let advertised = portal.advertise.as_ref();
        let advertised = advertised.map_or_else(String::new, |name| format!(" {name}"));
        format!("{} {}{advertised}", portal.bind, portal.group.unwrap_or(1))
    }))
}

fn devices(group: &Hyperscsi) -> String {
    lines(group.spec.device.iter().map(|device| {
        let level = device.level.as_deref().unwrap_or_default();
        format!("{} {level} {}", device.id, access(device.readonly, &[]))
    }))
}

fn lines<T: Display>(texts: impl IntoIterator<Item = T>) -> String {
    texts.into_iter().map(|text| format!("{text}\n")).collect()
}

fn flag(is_so: bool) -> String {
    u8::from(is_so).to_string()
}

fn optional(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

// How text is taken.

fn one_line(text: &str) -> Result<String, Refusal> {
    match text.lines().count() {
        0 | 1 => Ok(text.trim().to_owned()),
        got => Err(Refusal::NotOneLine { got }),
    }
}

fn alias(target: &Target, alias: String) -> Call {
    let keys = TargetKeys::of([&target.spec.name]);
    Call::edit(Edit::Set(Keys::Target(keys.with("alias", alias))))
}

fn of_hyperscsi(group: &Hyperscsi, set: fn(&mut HyperscsiKeys, String), text: String) -> Call {
    let mut keys = HyperscsiKeys {
        hyperscsi: group.name.clone(),
        ..HyperscsiKeys::default()
    };
    set(&mut keys, text);
    Call::edit(Edit::Set(Keys::Hyperscsi(keys)))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn whereabouts(medium: &Medium) -> String {
    if medium.loaded { "in" } else { "out" }.to_owned()
}

fn move_medium(lun: &Lun, text: &str) -> Result<Call, Refusal> {
    let id = lun.spec.id.clone();
    match text.trim() {
        "out" => Ok(Call::Eject { lun: id }),
        "in" => Ok(Call::Load { lun: id }),
        got => Err(Refusal::NotInOrOut {
            got: got.chars().take(20).collect(),
        }),
    }
}

fn end(session: &Session, text: &str) -> Result<Call, Refusal> {
    one(text, "end the session")?;
    Ok(Call::End {
        session: session.id,
    })
}

fn roll_back(snapshot: &Snapshot, text: &str) -> Result<Call, Refusal> {
    one(text, "roll the unit back")?;
    Ok(Call::RollBack {
        lun: snapshot.lun.clone(),
        name: snapshot.name.clone(),
    })
}

/// What does something is a 1.
fn one(text: &str, deed: &'static str) -> Result<(), Refusal> {
    match text.trim() {
        "1" => Ok(()),
        got => Err(Refusal::NotOne {
            deed,
            got: got.chars().take(20).collect(),
        }),
    }
}

fn keys(server: &spec::Nbd) -> NbdKeys {
    NbdKeys::of([server.place()])
}

fn of_server(keys: NbdKeys) -> Call {
    Call::edit(Edit::Set(Keys::Nbd(keys)))
}

fn tls(server: &spec::Nbd, text: &str) -> Result<Call, Refusal> {
    let mut files = text.lines().filter(|line| !line.trim().is_empty());
    let got = files.clone().count();
    if !matches!(got, 0 | 2 | 3) {
        return Err(Refusal::NotTls { got });
    }
    // An empty text takes the key out of the document.
    let mut keys = keys(server);
    for key in ["certificate", "key", "ca"] {
        keys = keys.with(key, files.next().unwrap_or_default().trim());
    }
    Ok(of_server(keys))
}

fn keys_of(quota: &Quota) -> QuotaKeys {
    QuotaKeys::of([&quota.name])
}

fn of_quota(keys: QuotaKeys) -> Call {
    Call::edit(Edit::Set(Keys::Quota(keys)))
}

fn soft(quota: &Quota, text: &str) -> Result<Call, Refusal> {
    let percent = match text.trim() {
        // The default.
        "" => 0,
        number => match number.parse::<u16>() {
            Ok(percent @ 1..=99) => percent,
            Ok(_) | Err(_) => {
                return Err(Refusal::NotPercent {
                    got: number.chars().take(20).collect(),
                });
            }
        },
    };
    Ok(of_quota(keys_of(quota).with("soft", percent)))
}
