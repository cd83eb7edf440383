//! Keys of `saveconfig.json`: rtslib writes all of them, and every kernel has some more attributes.

/// The file itself.
pub(super) const FILE: &[&str] = &["fabric_modules", "storage_objects", "targets"];

#[rustfmt::skip]
pub(super) const OF_MODULE: &[&str] = &[
    "name", "discovery_enable_auth", "discovery_userid", "discovery_password", "discovery_mutual_userid",
    "discovery_mutual_password",
];

#[rustfmt::skip]
pub(super) const OF_OBJECT: &[&str] = &[
    "aio", "alua_tpgs", "attributes", "config", "control", "dev", "hw_max_sectors", "max_data_area_mb", "name", "nullio",
    "plugin", "readonly", "size", "write_back", "wwn",
];

#[rustfmt::skip]
pub(super) const OBJECT_ATTRIBUTES: &[&str] = &[
    "alua_support", "block_size", "cmd_time_out", "data_pages_per_blk", "dev_config", "dev_size", "emulate_3pc",
    "emulate_caw", "emulate_dpo", "emulate_fua_read", "emulate_fua_write", "emulate_model_alias", "emulate_pr",
    "emulate_rest_reord", "emulate_rsoc", "emulate_tas", "emulate_tpu", "emulate_tpws", "emulate_ua_intlck_ctrl",
    "emulate_write_cache", "enforce_pr_isids", "fabric_max_sectors", "force_pr_aptpl", "hw_block_size", "hw_max_sectors",
    "hw_pi_prot_type", "hw_queue_depth", "is_nonrot", "max_data_area_mb", "max_sectors", "max_unmap_block_desc_count",
    "max_unmap_lba_count", "max_write_same_len", "nl_reply_supported", "optimal_sectors", "pgr_support",
    "pi_prot_format", "pi_prot_type", "pi_prot_verify", "qfull_time_out", "queue_depth", "submit_type", "task_timeout",
    "tmr_notification", "unmap_granularity", "unmap_granularity_alignment", "unmap_zeroes_data",
];

/// A target port group (ALUA) of a storage object.
#[rustfmt::skip]
pub(super) const OF_PORT_GROUP: &[&str] = &[
    "alua_access_state", "alua_access_status", "alua_access_type", "alua_support_active_nonoptimized",
    "alua_support_active_optimized", "alua_support_lba_dependent", "alua_support_offline", "alua_support_standby",
    "alua_support_transitioning", "alua_support_unavailable", "alua_write_metadata", "implicit_trans_secs", "members",
    "name", "nonop_delay_msecs", "preferred", "tg_pt_gp_id", "trans_delay_msecs",
];

/// Attributes of a storage object that initiators notice: which value is that of Tarn, what the other one meant, and
/// what to do.
#[rustfmt::skip]
pub(super) const NOTICED: &[(&str, bool, &str, &str)] = &[
    ("emulate_caw", true, "COMPARE AND WRITE was refused; Tarn takes it", "nothing, unless initiators are not to use it"),
    ("emulate_pr", true, "reservations were refused; Tarn takes them", "nothing, unless initiators are not to use them"),
    ("emulate_ua_intlck_ctrl", false, "a unit attention was kept after it was reported; Tarn clears it then",
        "nothing, unless an initiator goes by the UA_INTLCK_CTRL field of the control mode page"),
    ("is_nonrot", false, "the medium was reported as one that does not rotate; Tarn reports what the kernel has of the \
        device, and nothing of one in memory", "nothing, unless an initiator goes by VPD page B1h"),
];

pub(super) const OF_TARGET: &[&str] = &["fabric", "parameters", "tpgs", "wwn"];

#[rustfmt::skip]
pub(super) const OF_TPG: &[&str] = &[
    "attributes", "chap_mutual_password", "chap_mutual_userid", "chap_password", "chap_userid", "enable", "luns",
    "node_acls", "parameters", "portals", "tag",
];

#[rustfmt::skip]
pub(super) const TPG_ATTRIBUTES: &[&str] = &[
    "authentication", "cache_dynamic_acls", "default_cmdsn_depth", "default_erl", "demo_mode_discovery",
    "demo_mode_write_protect", "fabric_prot_type", "generate_node_acls", "login_keys_workaround", "login_timeout",
    "netif_timeout", "nopin_timeout", "prod_mode_write_protect", "t10_pi", "tpg_enabled_sendtargets",
];

#[rustfmt::skip]
pub(super) const TPG_PARAMETERS: &[&str] = &[
    "AuthMethod", "DataDigest", "DataPDUInOrder", "DataSequenceInOrder", "DefaultTime2Retain", "DefaultTime2Wait",
    "ErrorRecoveryLevel", "FirstBurstLength", "HeaderDigest", "IFMarkInt", "IFMarker", "ImmediateData", "InitialR2T",
    "MaxBurstLength", "MaxConnections", "MaxOutstandingR2T", "MaxRecvDataSegmentLength", "MaxXmitDataSegmentLength",
    "OFMarkInt", "OFMarker", "TargetAlias",
];

pub(super) const OF_LUN: &[&str] = &["alias", "alua_tg_pt_gp_name", "index", "storage_object"];

pub(super) const OF_PORTAL: &[&str] = &["ip_address", "iser", "offload", "port"];

#[rustfmt::skip]
pub(super) const OF_ACL: &[&str] = &[
    "attributes", "chap_mutual_password", "chap_mutual_userid", "chap_password", "chap_userid", "mapped_luns", "node_wwn",
    "parameters", "tag", "tcq_depth",
];

#[rustfmt::skip]
pub(super) const ACL_ATTRIBUTES: &[&str] = &[
    "authentication", "dataout_timeout", "dataout_timeout_retries", "default_erl", "nopin_response_timeout",
    "nopin_timeout", "random_datain_pdu_offsets", "random_datain_seq_offsets", "random_r2t_offsets",
];

pub(super) const OF_MAPPED: &[&str] = &["alias", "index", "tpg_lun", "write_protect"];
