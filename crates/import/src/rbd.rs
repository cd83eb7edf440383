//! Images of a Ceph cluster, as tgt and LIO name them.

use config::StoreSpec;

/// The store of `[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]`, found by options such as `conf=/etc/ceph/ceph.conf;id=admin`;
/// `None` if one of them is not known here.
pub(crate) fn store(image: &str, options: &str) -> Option<StoreSpec> {
    // The pool where none is given.
    let pool = if image.contains('/') { "" } else { "rbd/" };
    let mut text = format!(
        "rbd:{pool}{}",
        image.replace('%', "%25").replace('?', "%3F")
    );
    let mut separator = '?';
    for option in options.split(';').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=')?;
        let key = match key {
            "conf" => "conf",
            "id" => "user",
            "osd_op_timeout" => continue,
            _ => return None,
        };
        // Values that would have to be written in another way are left to the administrator.
        if value.is_empty() || value.contains(['%', '&', '?', '#', '+']) {
            return None;
        }
        text.push_str(&format!("{separator}{key}={value}"));
        separator = '&';
    }
    StoreSpec::parse(&text).ok()
}

#[cfg(test)]
mod tests {
    use config::StoreOption;

    use super::*;

    #[test]
    fn an_image_keeps_its_pool_and_how_its_cluster_is_found() {
        for (image, options, expected) in [
            ("img", "", Some("rbd:rbd/img")),
            (
                "pool/img",
                "conf=/etc/ceph/ceph.conf",
                Some("rbd:pool/img?conf=/etc/ceph/ceph.conf"),
            ),
            (
                "p/n/i@s",
                "id=joe;osd_op_timeout=30",
                Some("rbd:p/n/i@s?user=joe"),
            ),
            ("p/i", "cluster=far", None),
            ("p/i", "conf", None),
            ("a/b/c/d", "", None),
        ] {
            let written = store(image, options).map(|store| {
                store.to_store(|row, _| matches!(row.option, StoreOption::Conf | StoreOption::User))
            });
            assert_eq!(written.as_deref(), expected, "{image} {options}");
        }
    }
}
