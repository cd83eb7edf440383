//! Keys of `targets.conf`, and what becomes of those that Tarn has no counterpart for.

use crate::found::Idle;

pub(super) const GLOBAL: &[(&str, Idle)] = &[
    ("ignore-errors", Idle::Housekeeping),
    ("control-port", Idle::Housekeeping),
    ("incomingdiscoveryuser", Idle::Housekeeping),
    ("outgoingdiscoveryuser", Idle::Housekeeping),
    ("default-driver", Idle::Housekeeping),
    ("include", Idle::Housekeeping),
    (
        "iSNS",
        Idle::Missed("Tarn does not register with iSNS", ISNS),
    ),
    ("iSNSServerIP", Idle::Housekeeping),
    ("iSNSServerPort", Idle::Housekeeping),
    ("iSNSAccessControl", Idle::Housekeeping),
];

const ISNS: &str = "give the initiators the address of the portal";

pub(super) const OF_TARGET: &[(&str, Idle)] = &[
    ("driver", Idle::Housekeeping),
    ("controller_tid", Idle::Housekeeping),
    ("state", Idle::Housekeeping),
    ("IFMarker", Idle::Housekeeping),
    ("OFMarker", Idle::Housekeeping),
    ("IFMarkInt", Idle::Housekeeping),
    ("OFMarkInt", Idle::Housekeeping),
    ("MaxRecvDataSegmentLength", Idle::Tuning),
    ("MaxXmitDataSegmentLength", Idle::Tuning),
    ("HeaderDigest", Idle::Tuning),
    ("DataDigest", Idle::Tuning),
    ("InitialR2T", Idle::Tuning),
    ("MaxOutstandingR2T", Idle::Tuning),
    ("ImmediateData", Idle::Tuning),
    ("FirstBurstLength", Idle::Tuning),
    ("MaxBurstLength", Idle::Tuning),
    ("DataPDUInOrder", Idle::Housekeeping),
    ("DataSequenceInOrder", Idle::Housekeeping),
    ("ErrorRecoveryLevel", Idle::Tuning),
    ("DefaultTime2Wait", Idle::Tuning),
    ("DefaultTime2Retain", Idle::Tuning),
    ("MaxConnections", Idle::Tuning),
];

#[rustfmt::skip]
pub(super) const OF_UNIT: &[(&str, Idle)] = &[
    ("allow-in-use", Idle::Housekeeping),
    ("online", Idle::Housekeeping),
    ("sense_format", Idle::Housekeeping),
    ("bsopts", Idle::Housekeeping),
    ("lbppbe", Idle::Tuning),
    ("la_lba", Idle::Tuning),
    ("optimal_xfer_gran", Idle::Tuning),
    ("optimal_xfer_len", Idle::Tuning),
    ("mode_page", Idle::Missed("mode pages are Tarn's own", "see whether initiators ask for a value of it")),
    ("params", Idle::Guards("parameters of tgtadm are not read", "see what it sets, and whether Tarn has a key for it")),
    ("product_rev", Idle::Tuning),
    ("path", Idle::Guards("it replaces the store after the start", "set store by hand")),
];

/// Keys of a unit that this reader understands; they may stand in the target for all its units.
pub(super) const UNIT_KEYS: &[&str] = &[
    "lun",
    "scsi_id",
    "scsi_sn",
    "vendor_id",
    "product_id",
    "readonly",
    "removable",
    "write-cache",
    "block-size",
    "bs-type",
    "bsoflags",
    "device-type",
];

/// Keys of a target that this reader understands.
pub(super) const TARGET_KEYS: &[&str] = &[
    "backing-store",
    "direct-store",
    "incominguser",
    "outgoinguser",
    "initiator-address",
    "initiator-name",
];
