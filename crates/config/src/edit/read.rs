//! Sections of the file as the types of the API say them, in the administrator's words.

use api::spec;
use toml_edit::{Item, TableLike};

use super::list::{Row, rows};
use super::table::{text, texts};
use crate::LunNumber;

pub(super) fn lun(table: &dyn TableLike) -> spec::Lun {
    spec::Lun {
        id: text(table, "id").unwrap_or_default(),
        store: text(table, "store").unwrap_or_default(),
        serial: text(table, "serial"),
        naa: text(table, "naa"),
        owner: text(table, "owner"),
        log: text(table, "log"),
        sync_bias: text(table, "sync_bias"),
        snapshots: table
            .get("snapshots")
            .and_then(Item::as_table_like)
            .map(schedule),
    }
}

pub(super) fn schedule(table: &dyn TableLike) -> spec::Schedule {
    spec::Schedule {
        hourly: number(table, "hourly"),
        daily: number(table, "daily"),
        weekly: number(table, "weekly"),
        at: text(table, "at"),
    }
}

pub(super) fn target(table: &dyn TableLike) -> spec::Target {
    let portals = table.get("portals");
    let algorithms = table.get("chap_algorithms");
    spec::Target {
        name: text(table, "name").unwrap_or_default(),
        alias: text(table, "alias"),
        portals: portals.map(|list| rows(Some(list)).into_iter().map(portal).collect()),
        auth: texts(table, "auth"),
        chap_algorithms: algorithms.map(|_| texts(table, "chap_algorithms")),
        cold_reset: flag(table, "cold_reset"),
        luns: rows(table.get("luns"))
            .into_iter()
            .filter_map(target_lun)
            .collect(),
    }
}

pub(super) fn portal(row: Row<'_>) -> spec::Portal {
    match row {
        Row::Text(bind) => spec::Portal {
            bind: bind.to_owned(),
            advertise: None,
            group: None,
        },
        Row::Table(table) => spec::Portal {
            bind: text(table, "bind").unwrap_or_default(),
            advertise: text(table, "advertise"),
            group: number(table, "group"),
        },
    }
}

/// The number of an entry of a target.
pub(super) fn lun_number(row: Row<'_>) -> Option<u16> {
    match row {
        Row::Table(table) => number(table, "lun").filter(|lun| *lun <= LunNumber::MAX),
        Row::Text(_) => None,
    }
}

pub(super) fn target_lun(row: Row<'_>) -> Option<spec::TargetLun> {
    let Row::Table(table) = row else {
        return None;
    };
    Some(spec::TargetLun {
        lun: lun_number(row)?,
        id: text(table, "id").unwrap_or_default(),
        groups: texts(table, "groups"),
        readonly: flag(table, "readonly"),
    })
}

pub(super) fn group(table: &dyn TableLike) -> spec::Group {
    spec::Group {
        id: text(table, "id").unwrap_or_default(),
        initiators: texts(table, "initiators"),
    }
}

pub(super) fn user(table: &dyn TableLike) -> spec::User {
    let mutual = table.get("mutual").and_then(Item::as_table_like);
    spec::User {
        name: text(table, "name").unwrap_or_default(),
        secret_file: text(table, "secret_file"),
        secret: None,
        mutual: mutual.map(|mutual| spec::Mutual {
            name: text(mutual, "name").unwrap_or_default(),
            secret_file: text(mutual, "secret_file"),
            secret: None,
        }),
        initiators: Some(texts(table, "initiators")).filter(|names| !names.is_empty()),
    }
}

pub(super) fn flag(table: &dyn TableLike, key: &str) -> bool {
    table.get(key).and_then(Item::as_bool).unwrap_or_default()
}

pub(super) fn number(table: &dyn TableLike, key: &str) -> Option<u16> {
    let number = table.get(key).and_then(Item::as_integer)?;
    u16::try_from(number).ok()
}
