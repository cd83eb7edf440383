//! Configuration of Tarn: text in, checked model out.
//!
//! The text is a TOML file ([`Model::from_toml`]) or the STOREs of a command line
//! ([`Model::from_stores`]); both give the same [`Model`]. A model needs no further check
//! again: names have the form of the standard, sizes fit, every reference leads somewhere.
//! What is legal but unwise comes from [`Model::warnings`], who may see what from
//! [`Model::login`].
//!
//! This crate is pure. It opens no file, resolves no name, reads no environment: that a path
//! exists, is a block device or holds a good secret is for the binary to find out, and it can
//! name the [`Place`] when it does.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod address;
mod admin;
mod confine;
mod diff;
mod edit;
mod effective;
mod error;
mod fields;
mod file;
mod group;
mod hyperscsi;
mod identity;
mod index;
mod keyed;
pub mod keys;
mod limits;
mod log_device;
mod luns;
mod mistakes;
mod model;
mod name;
mod names;
mod nbd;
mod notify;
mod own;
mod place;
mod quota;
mod reader;
mod schedule;
mod schema;
mod seal;
mod secret;
mod server;
mod shorthand;
mod size;
mod specs;
mod store;
mod target;
mod unit;
mod user;
mod value;
mod views;
mod warning;
mod words;

pub use access::{Authentication, Denial, Initiator, LunEntry, LunMap};
pub use address::{AddressRule, Cidr, HYPERSCSI_PORT, HostPort, ISCSI_PORT, NBD_PORT, is_host};
pub use admin::{Admin, AdminListener, Certificate};
pub use confine::{Account, Confine, Root};
pub use diff::{
    Difference, Differences, InTarget, KeyChange, NewSecrets, Renamed, diff, diff_with,
    pending_keys,
};
pub use edit::{
    Draft, EditError, hyperscsi_name, nbd_address, nbd_name, with_other_secrets, with_secrets_of,
    without_secrets,
};
pub use error::{ConfigError, Rule};
pub use group::{Group, InitiatorMatch};
pub use hyperscsi::{
    HYPERSCSI_NAME_BYTES_MAX, HyperScsiArguments, HyperScsiDevice, HyperScsiGroup, HyperScsiLevel,
    HyperScsiPassword, HyperScsiPlace, HyperScsiProfile, HyperScsiRetransmit, HyperScsiRule,
    PASSWORD_BYTES_MAX, PASSWORD_BYTES_MIN, WrittenPassword,
};
pub use identity::{Naa, NaaRule, Serial};
pub use index::{
    GroupIndex, HyperScsiIndex, NbdIndex, NotifyIndex, QuotaIndex, StoreIndex, TargetIndex,
    UnitIndex, UserIndex,
};
pub use limits::{DigestPolicy, Limits};
pub use log_device::{LogDevice, SyncBias};
pub use luns::{LunKey, LunNumber, TargetLun, TargetLuns, Viewers};
pub use mistakes::SpokenPaths;
pub use model::{Listener, Model};
pub use name::{IscsiName, NamePattern, NameRule, default_target_name};
pub use nbd::{NbdPlace, NbdServer, NbdTls};
pub use notify::{EVENT_KINDS, Mail, MailLogin, Notify, NotifyTo, SmtpServer, WebhookUrl};
pub use place::Place;
pub use quota::{Quota, QuotaOf, QuotaRule};
pub use schedule::Schedule;
pub use schema::schema;
pub use secret::{NOT_SHOWN, SecretFile};
pub use server::{Coalescing, LogLevel, Server};
pub use size::{SIZE_BYTES_MAX, SizeRule, parse_size};
pub use specs::Specs;
pub use store::{
    BlockSize, CacheMode, DeviceType, Export, FarLun, GroupDevice, Image, KINDS, KindRow, Medium,
    Members, NamedStore, Node, OPTIONS, OptionRow, ServerAddress, SnapshotOf, StoreAt, StoreKind,
    StoreOption, StorePlace, StoreRule, StoreSpec, store_help, store_reference,
    with_changed_options, with_options,
};
pub use target::{ChapAlgorithm, PORTAL_DEFAULT, Portal, Target};
pub use unit::{InquiryNames, Unit};
pub use user::{Mutual, User};
pub use value::is_invisible;
pub use warning::Warning;
