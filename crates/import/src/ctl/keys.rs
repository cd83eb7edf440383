//! Keys of `ctl.conf`, and what becomes of those that Tarn has no counterpart for.

use crate::found::Idle;

#[rustfmt::skip]
pub(super) const GLOBAL: &[(&str, Idle)] = &[
    ("debug", Idle::Housekeeping),
    ("maxproc", Idle::Housekeeping),
    ("pidfile", Idle::Housekeeping),
    ("timeout", Idle::Tuning),
    ("isns-server", Idle::Missed("Tarn does not register with iSNS", "give the initiators the address of the portal")),
    ("isns-period", Idle::Housekeeping),
    ("isns-timeout", Idle::Housekeeping),
    ("transport-group", Idle::Missed("Tarn does not speak NVMe over Fabrics", "keep ctld for it")),
    ("controller", Idle::Missed("Tarn does not speak NVMe over Fabrics", "keep ctld for it")),
];

#[rustfmt::skip]
pub(super) const OF_PORTAL_GROUP: &[(&str, Idle)] = &[
    ("listen", Idle::Housekeeping),
    ("tag", Idle::Housekeeping),
    ("discovery-auth-group", Idle::Housekeeping),
    ("listen-iser", Idle::Missed("Tarn has no iSER", "log the initiators in over TCP")),
    ("discovery-filter", Idle::Missed("discovery of Tarn shows a target to those who may log in to it", "nothing, unless it was none")),
    ("foreign", Idle::Missed("Tarn knows no portals of other machines", "log the initiators in to the address of that machine")),
    ("redirect", Idle::Missed("Tarn does not redirect initiators", "give the initiators the other address")),
    ("option", Idle::Missed("options of portal groups have no counterpart", "see what it is for")),
    ("offload", Idle::Tuning),
    ("dscp", Idle::Tuning),
    ("pcp", Idle::Tuning),
];

#[rustfmt::skip]
pub(super) const OF_TARGET: &[(&str, Idle)] = &[
    ("alias", Idle::Housekeeping),
    ("auth-group", Idle::Housekeeping),
    ("auth-type", Idle::Housekeeping),
    ("chap", Idle::Housekeeping),
    ("chap-mutual", Idle::Housekeeping),
    ("initiator-name", Idle::Housekeeping),
    ("initiator-portal", Idle::Housekeeping),
    ("portal-group", Idle::Housekeeping),
    ("lun", Idle::Housekeeping),
    ("offload", Idle::Tuning),
    ("port", Idle::Missed("Tarn serves iSCSI, not ports of other hardware", "log the initiators in over iSCSI")),
    ("redirect", Idle::Missed("Tarn does not redirect initiators", "give the initiators the other address")),
];

pub(super) const OF_LUN: &[(&str, Idle)] = &[
    ("path", Idle::Housekeeping),
    ("size", Idle::Housekeeping),
    ("serial", Idle::Housekeeping),
    ("device-id", Idle::Housekeeping),
    ("blocksize", Idle::Housekeeping),
    ("backend", Idle::Housekeeping),
    ("device-type", Idle::Housekeeping),
    ("ctl-lun", Idle::Housekeeping),
    ("option", Idle::Housekeeping),
];

#[rustfmt::skip]
pub(super) const OPTIONS: &[(&str, Idle)] = &[
    ("vendor", Idle::Housekeeping),
    ("product", Idle::Housekeeping),
    ("revision", Idle::Housekeeping),
    ("naa", Idle::Housekeeping),
    ("readonly", Idle::Housekeeping),
    ("unmap", Idle::Housekeeping),
    ("writecache", Idle::Housekeeping),
    ("eui", Idle::Missed("Tarn shows no EUI-64 designator", "see the note on VPD page 83h")),
    ("uuid", Idle::Missed("Tarn shows no UUID designator", "see the note on VPD page 83h")),
    ("scsiname", Idle::Missed("Tarn shows the name of the target as device name", "nothing, unless an initiator goes by it")),
    ("pblocksize", Idle::Tuning),
    ("pblockoffset", Idle::Tuning),
    ("ublocksize", Idle::Tuning),
    ("ublockoffset", Idle::Tuning),
    ("rpm", Idle::Tuning),
    ("formfactor", Idle::Tuning),
    ("provisioning_type", Idle::Tuning),
    ("serseq", Idle::Tuning),
    ("reordering", Idle::Tuning),
    ("threads", Idle::Housekeeping),
    ("num_threads", Idle::Housekeeping),
    ("capacity", Idle::Housekeeping),
    ("insecure_tpc", Idle::Housekeeping),
    ("removable", Idle::Housekeeping),
];
