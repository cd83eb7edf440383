//! Keys of `scst.conf`, and what becomes of those that Tarn has no counterpart for.

use crate::found::Idle;

pub(super) const OF_DEVICE: &[(&str, Idle)] = &[
    ("filename", Idle::Housekeeping),
    ("blocksize", Idle::Housekeeping),
    ("read_only", Idle::Housekeeping),
    ("write_through", Idle::Housekeeping),
    ("nv_cache", Idle::Housekeeping),
    ("o_direct", Idle::Housekeeping),
    ("thin_provisioned", Idle::Housekeeping),
    ("size", Idle::Housekeeping),
    ("size_mb", Idle::Housekeeping),
    ("usn", Idle::Housekeeping),
    ("t10_dev_id", Idle::Housekeeping),
    ("naa_id", Idle::Housekeeping),
    ("t10_vend_id", Idle::Housekeeping),
    ("prod_id", Idle::Housekeeping),
    ("prod_rev_lvl", Idle::Housekeeping),
    ("vend_specific_id", Idle::Housekeeping),
    ("threads_num", Idle::Housekeeping),
    ("threads_pool_type", Idle::Housekeeping),
    ("numa_node_id", Idle::Housekeeping),
    ("async", Idle::Housekeeping),
    ("tst", Idle::Housekeeping),
    ("rotational", Idle::Tuning),
    (
        "eui64_id",
        Idle::Missed(
            "Tarn shows no EUI-64 designator",
            "see the note on VPD page 83h",
        ),
    ),
    (
        "scsi_device_name",
        Idle::Missed(
            "Tarn shows the name of the target as device name",
            "nothing, unless an initiator goes by it",
        ),
    ),
    (
        "inq_vend_specific",
        Idle::Missed(
            "INQUIRY data have no vendor specific part",
            "nothing, unless an initiator reads it",
        ),
    ),
    ("removable", Idle::Housekeeping),
    (
        "cluster_mode",
        Idle::Missed(
            "reservations are not shared with another node",
            "let one Tarn serve the disk",
        ),
    ),
    (
        "dif_mode",
        Idle::Missed(
            "Tarn has no protection information",
            "format the disk without at the initiator",
        ),
    ),
    ("dif_type", Idle::Housekeeping),
];

pub(super) const OF_TARGET: &[(&str, Idle)] = &[
    ("enabled", Idle::Housekeeping),
    ("HW_TARGET", Idle::Housekeeping),
    ("rel_tgt_id", Idle::Housekeeping),
    ("cpu_mask", Idle::Housekeeping),
    ("io_grouping_type", Idle::Housekeeping),
    ("per_portal_acl", Idle::Housekeeping),
    ("LUN", Idle::Housekeeping),
    ("GROUP", Idle::Housekeeping),
    ("IncomingUser", Idle::Housekeeping),
    ("OutgoingUser", Idle::Housekeeping),
    ("alias", Idle::Housekeeping),
    ("allowed_portal", Idle::Housekeeping),
    ("QueuedCommands", Idle::Tuning),
    ("RspTimeout", Idle::Tuning),
    ("NopInInterval", Idle::Tuning),
    ("NopInTimeout", Idle::Tuning),
    ("InitialR2T", Idle::Tuning),
    ("ImmediateData", Idle::Tuning),
    ("FirstBurstLength", Idle::Tuning),
    ("MaxBurstLength", Idle::Tuning),
    ("MaxRecvDataSegmentLength", Idle::Tuning),
    ("MaxXmitDataSegmentLength", Idle::Tuning),
    ("MaxOutstandingR2T", Idle::Tuning),
    ("MaxSessions", Idle::Tuning),
    ("HeaderDigest", Idle::Tuning),
    ("DataDigest", Idle::Tuning),
    (
        "redirect",
        Idle::Missed(
            "Tarn does not redirect initiators",
            "give the initiators the other address",
        ),
    ),
];
