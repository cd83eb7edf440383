//! Keys of `scst.conf`, and what becomes of those that Tarn has no counterpart for.

use crate::found::Idle;

#[rustfmt::skip]
pub(super) const GLOBAL: &[(&str, Idle)] = &[
    ("setup_id", Idle::Housekeeping),
    ("max_tasklet_cmd", Idle::Housekeeping),
    ("poll_us", Idle::Housekeeping),
    ("suspend", Idle::Housekeeping),
    ("threads", Idle::Housekeeping),
    ("force_global_sgv_pool", Idle::Housekeeping),
    ("trace_level", Idle::Housekeeping),
    ("trace_mcmds", Idle::Housekeeping),
    ("HANDLER", Idle::Housekeeping),
    ("TARGET_DRIVER", Idle::Housekeeping),
    ("DEVICE_GROUP", Idle::Housekeeping),
];

pub(super) const OF_HANDLER: &[(&str, Idle)] = &[
    ("DEVICE", Idle::Housekeeping),
    ("trace_level", Idle::Housekeeping),
];

#[rustfmt::skip]
pub(super) const OF_DRIVER: &[(&str, Idle)] = &[
    ("TARGET", Idle::Housekeeping),
    ("enabled", Idle::Housekeeping),
    ("IncomingUser", Idle::Housekeeping),
    ("OutgoingUser", Idle::Missed("Tarn does not prove itself in discovery sessions with a user of their own", "give the discovery user a mutual table by hand")),
    ("iSNSServer", Idle::Missed("Tarn does not register with iSNS", "give the initiators the address of the portal")),
    ("isns_entity_name", Idle::Housekeeping),
    ("link_local", Idle::Housekeeping),
    ("internal_portal", Idle::Housekeeping),
    ("trace_level", Idle::Housekeeping),
    ("open_state", Idle::Housekeeping),
];

pub(super) const OF_GROUP: &[(&str, Idle)] = &[
    ("LUN", Idle::Housekeeping),
    ("INITIATOR", Idle::Housekeeping),
    ("cpu_mask", Idle::Housekeeping),
    ("io_grouping_type", Idle::Housekeeping),
    ("addr_method", Idle::Housekeeping),
    ("black_hole", Idle::Housekeeping),
];

pub(super) const OF_LUN: &[(&str, Idle)] = &[("read_only", Idle::Housekeeping)];

#[rustfmt::skip]
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
    ("lb_per_pb_exp", Idle::Tuning),
    ("opt_trans_len", Idle::Tuning),
    ("zero_copy", Idle::Housekeeping),
    ("expl_alua", Idle::Housekeeping),
    ("bind_alua_state", Idle::Housekeeping),
    ("resync_size", Idle::Housekeeping),
    ("gen_tp_soft_threshold_reached_UA", Idle::Housekeeping),
    ("active", Idle::Guards("a device that SCST has open only at times", "see whether it is used here, and add it to luns")),
    ("dummy", Idle::Guards("a device without data", "nothing, unless its number is used")),
    ("eui64_id", Idle::Missed("Tarn shows no EUI-64 designator", "see the note on VPD page 83h")),
    ("scsi_device_name", Idle::Missed("Tarn shows the name of the target as device name", "nothing, unless an initiator goes by it")),
    ("inq_vend_specific", Idle::Missed("INQUIRY data have no vendor specific part", "nothing, unless an initiator reads it")),
    ("removable", Idle::Housekeeping),
    ("cluster_mode", Idle::Missed("reservations are not shared with another node", "let one Tarn serve the disk")),
    ("dif_mode", Idle::Missed("Tarn has no protection information", "format the disk without at the initiator")),
    ("dif_type", Idle::Housekeeping),
    ("dif_static_app_tag", Idle::Housekeeping),
    ("dif_filename", Idle::Housekeeping),
];

pub(super) const OF_TARGET: &[(&str, Idle)] = &[
    ("enabled", Idle::Housekeeping),
    ("HW_TARGET", Idle::Housekeeping),
    ("rel_tgt_id", Idle::Housekeeping),
    ("cpu_mask", Idle::Housekeeping),
    ("io_grouping_type", Idle::Housekeeping),
    ("addr_method", Idle::Housekeeping),
    ("black_hole", Idle::Housekeeping),
    ("aen_disabled", Idle::Housekeeping),
    ("comment", Idle::Housekeeping),
    (
        "forward_src",
        Idle::Guards(
            "commands are passed on between two servers",
            "let one server have the disk",
        ),
    ),
    (
        "forward_dst",
        Idle::Guards(
            "commands are passed on between two servers",
            "let one server have the disk",
        ),
    ),
    (
        "forwarding",
        Idle::Guards(
            "commands are passed on between two servers",
            "let one server have the disk",
        ),
    ),
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
