//! What is changed in a daemon that runs.

/// One of everything that is served.
pub(super) const BASE: &str = r#"
[[lun]]
id = "a"
store = "file:{dir}/a.img?size=8M&thin"
serial = "A1"
naa = "3000000000000001"
owner = "bob"
# more of a
[[lun]]
id = "b"
store = "mem:8M?removable"
# more of b
[[lun]]
id = "r"
store = "mem:1M"
[[lun]]
id = "l"
store = "file:{dir}/l.img?size=8M"
log = "file:{dir}/l.log?size=16M"
# more of l
[[store]]
id = "left"
store = "file:{dir}/left.img?size=1M"
[[store]]
id = "right"
store = "file:{dir}/right.img?size=1M"
[[lun]]
id = "w"
store = "stripe:left,right?chunk=64k"
[[group]]
id = "known"
initiators = ["iqn.2026-11.example.tarn:tester", "127.0.0.0/8"]
[[group]]
id = "others"
initiators = ["192.0.2.0/24"]
[[user]]
name = "alice"
secret_file = "a.secret"
mutual = { name = "tarn", secret_file = "b.secret" }
# more of alice
[[target]]
name = "iqn.2026-11.example.tarn:one"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "a" }, { lun = 1, id = "b" }, { lun = 3, id = "l" }]
# more of one
[[target]]
name = "iqn.2026-11.example.tarn:two"
portals = [{ bind = "127.0.0.1:0" }]
luns = [{ lun = 0, id = "r" }, { lun = 1, id = "b", groups = ["known"] }, { lun = 2, id = "w" }]
auth = ["alice"]
# more of two
[[nbd]]
bind = "127.0.0.1:0"
luns = ["r", "a"]
# more of nbd
[[nbd]]
socket = "{dir}/nbd.sock"
luns = ["r"]
# more of the socket
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1:0"
password_file = "a.secret"
# more of the group
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group.device]]
id = "r"
level = "crc"
# more of the device
[[quota]]
owner = "bob"
provisioned = "20M"
used = "12M"
# more of the quota
[server]
state = "{dir}/state"
cores = 2
# more of the server
[admin]
socket = "{dir}/tarn.sock"
# more of the administration
[limits]
pool_per_core_bytes = "16M"
# more of the limits
[confine]
seccomp = false
"#;

/// What is written in place of what. A row is named by its new text.
#[rustfmt::skip]
pub(super) const ROWS: &[(&str, &str)] = &[
    ("# more of a\n", "vendor = \"OTHER\"\n# more of a\n"),
    ("# more of a\n", "product = \"THING\"\n# more of a\n"),
    ("# more of a\n", "revision = \"R7\"\n# more of a\n"),
    ("owner = \"bob\"\n# more of a", "# more of a"),
    ("id = \"r\"\nstore", "id = \"r2\"\nstore"),
    ("/a.img", "/a2.img"),
    ("/a.img?size=8M", "/a.img?size=8M&cache=writethrough"),
    ("/a.img?size=8M", "/a.img?size=4M"),
    ("/a.img?size=8M&thin", "/a.img?size=8M&thin=false"),
    ("/a.img?size=8M", "/a.img?size=8M&readonly"),
    ("/a.img?size=8M", "/a.img?size=8M&blocksize=4096"),
    ("mem:8M?removable", "mem:8M"),
    ("mem:8M?removable", "mem:16M?removable"),
    ("mem:1M", "null:1M"),
    ("\"A1\"", "\"A2\""),
    ("\"3000000000000001\"", "\"3000000000000002\""),
    ("# more of a\n", "log = \"file:{dir}/a.log?size=16M\"\n# more of a\n"),
    ("# more of a\n", "log = \"file:{dir}/a.log?size=8M\"\n# more of a\n"),
    ("log = \"file:{dir}/l.log?size=16M\"\n", ""),
    ("/l.log?size=16M", "/l.log?size=32M"),
    ("# more of l\n", "sync_bias = \"throughput\"\n# more of l\n"),
    ("chunk=64k", "chunk=128k"),
    ("id = \"right\"", "id = \"rest\""),
    ("left,right", "right,left"),
    ("stripe:left,right?chunk=64k", "concat:left,right"),
    ("# more of one\n", "alias = \"shelf\"\n# more of one\n"),
    ("tarn:two\"", "tarn:zwei\""),
    ("portals = [\"127.0.0.1:0\"]", "portals = [\"127.0.0.1:0\", \"127.0.0.1:0\"]"),
    ("{ bind = \"127.0.0.1:0\" }", "{ bind = \"127.0.0.1:0\", advertise = \"san.example:7\" }"),
    ("{ bind = \"127.0.0.1:0\" }", "{ bind = \"127.0.0.1:0\", group = 4 }"),
    ("auth = [\"alice\"]\n", ""),
    ("# more of two\n", "chap_algorithms = [\"sha256\"]\n# more of two\n"),
    ("# more of two\n", "cold_reset = true\n# more of two\n"),
    ("{ lun = 3, id = \"l\" }]", "{ lun = 3, id = \"l\" }, { lun = 7, id = \"r\", readonly = true }]"),
    ("{ lun = 3, id = \"l\" }]", "{ lun = 4, id = \"l\" }]"),
    ("{ lun = 3, id = \"l\" }]", "{ lun = 3, id = \"w\" }]"),
    ("groups = [\"known\"]", "groups = [\"others\"]"),
    ("groups = [\"known\"]", "groups = [\"known\"], readonly = true"),
    ("name = \"alice\"\nsecret_file = \"a.secret\"", "name = \"alice\"\nsecret_file = \"c.secret\""),
    ("mutual = { name = \"tarn\", secret_file = \"b.secret\" }\n", ""),
    ("\"tarn\", secret", "\"other\", secret"),
    ("# more of alice\n", "initiators = [\"iqn.2026-11.example.tarn:tester\"]\n# more of alice\n"),
    ("initiators = [\"iqn.2026-11.example.tarn:tester\", \"127.0.0.0/8\"]", "initiators = [\"192.0.2.7\"]"),
    ("# more of the socket\n", "mode = \"0660\"\n# more of the socket\n"),
    ("/nbd.sock", "/other.sock"),
    ("luns = [\"r\", \"a\"]", "luns = [\"a\", \"b\"]"),
    ("# more of nbd\n", "groups = [\"others\"]\n# more of nbd\n"),
    ("\"ABC\"", "\"DEF\""),
    ("# more of the group\n", "user = \"carol\"\n# more of the group\n"),
    ("password_file = \"a.secret\"", "password_file = \"b.secret\""),
    ("password_file = \"a.secret\"", "password = \"other horse battery\""),
    ("password_file = \"a.secret\"", "open = true"),
    ("# more of the group\n", "retransmit = \"window\"\n# more of the group\n"),
    ("# more of the device\n", "[[hyperscsi.group.device]]\nid = \"b\"\nlevel = \"crc\"\n"),
    ("level = \"crc\"\n# more of the device", "level = \"hash\"\n# more of the device"),
    ("# more of the device\n", "readonly = true\n# more of the device\n"),
    ("owner = \"bob\"\nprov", "owner = \"carol\"\nprov"),
    ("\"20M\"", "\"40M\""),
    ("\"20M\"", "\"4M\""),
    ("\"12M\"", "\"24M\""),
    ("# more of the quota\n", "soft = 40\n# more of the quota\n"),
    ("# more of the server\n", "discovery_auth = [\"alice\"]\n# more of the server\n"),
    ("# more of the server\n", "log = \"warn\"\n# more of the server\n"),
    ("# more of the server\n", "busy_poll_us = 50\n# more of the server\n"),
    ("# more of the server\n", "coalescing = \"always\"\n# more of the server\n"),
    ("cores = 2", "cores = 1"),
    ("/state\"", "/other-state\""),
    ("# more of the administration\n", "names = [\"san.example\"]\n# more of the administration\n"),
    ("# more of the administration\n", "listen = [\"127.0.0.1:0\"]\n# more of the administration\n"),
    ("# more of the administration\n", "tls = false\n# more of the administration\n"),
    ("# more of the administration\n", "enabled = false\n# more of the administration\n"),
    ("/tarn.sock", "/other-tarn.sock"),
    ("# more of the limits\n", "queue_depth = 7\n# more of the limits\n"),
    ("# more of the limits\n", "slow_command_ms = 100\n# more of the limits\n"),
    ("# more of the limits\n", "core_stall_limit_seconds = 30\n# more of the limits\n"),
    ("# more of the limits\n", "unproved_memory_bytes = \"8M\"\n# more of the limits\n"),
    ("\"16M\"", "\"32M\""),
    ("seccomp = false", "seccomp = true"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"mem:2M\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/none/n.img?size=1M\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/n.img?size=1M\"\nowner = \"bob\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/a.img\"\n"),
    ("# more of b\n", "[[notify]]\nurl = \"http://127.0.0.1:9/\"\nsecret_file = \"a.secret\"\n"),
    ("# more of b\n", "# a comment\n"),
    // Stores that cannot be opened, or not so.
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/none.img\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/tarn.toml\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/state/history/n.img?size=1M\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"block:/dev/no-such-device\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"cdrom:{dir}/none.iso\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"cdrom:\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"snap:a@none\"\n"),
    ("# more of b\n", "[[lun]]\nid = \"n\"\nstore = \"file:{dir}/n.img?size=1M\"\nlog = \"file:{dir}/n.log?size=1M\"\n"),
    ("/a.img?size=8M", "/a.img?size=64M"),
    ("right.img?size=1M", "right.img?size=2M"),
    ("right.img?size=1M", "right.img?size=512k"),
    ("owner = \"bob\"\n# more of a", "owner = \"carol\"\n# more of a"),
    // Places that cannot be listened at, and files that are not there.
    ("portals = [\"127.0.0.1:0\"]", "portals = [\"192.0.2.1:0\"]"),
    ("# more of nbd\n", "[[nbd]]\nbind = \"192.0.2.1:0\"\nluns = [\"a\"]\n"),
    ("# more of nbd\n", "[[nbd]]\nsocket = \"{dir}/none/n.sock\"\nluns = [\"a\"]\n"),
    ("# more of nbd\n", "[[nbd]]\nsocket = \"{dir}/a.secret\"\nluns = [\"a\"]\n"),
    ("# more of nbd\n", "[[nbd]]\nsocket = \"{dir}/n.sock\"\nluns = [\"a\"]\n"),
    ("# more of nbd\n", "certificate = \"none.pem\"\nkey = \"none.key\"\n# more of nbd\n"),
    ("[[nbd]]\nsocket = \"{dir}/nbd.sock\"\nluns = [\"r\"]\n", ""),
    ("# more of the device\n", "[[hyperscsi.group]]\nname = \"N\"\nudp = \"127.0.0.1:0\"\nopen = true\ndevice = [{ id = \"b\", level = \"crc\" }]\n"),
    ("# more of the device\n", "[[hyperscsi.group]]\nname = \"N\"\nudp = \"192.0.2.1:0\"\nopen = true\ndevice = [{ id = \"b\", level = \"crc\" }]\n"),
    ("# more of the administration\n", "listen = [\"192.0.2.1:0\"]\n# more of the administration\n"),
    ("# more of the administration\n", "certificate = \"none.pem\"\nkey = \"none.key\"\n# more of the administration\n"),
    ("name = \"alice\"\nsecret_file = \"a.secret\"", "name = \"alice\"\nsecret_file = \"tarn.toml\""),
    ("# more of b\n", "[[notify]]\nurl = \"http://127.0.0.1:9/\"\nsecret_file = \"none.secret\"\n"),
    ("# more of b\n", "[[notify]]\nmail = \"ops@example.org\"\n"),
    // What is only counted, confined or limited.
    ("# more of the quota\n", "[[quota]]\npool = \"{dir}\"\nused = \"1G\"\n"),
    ("# more of the quota\n", "[[quota]]\npool = \"{dir}/none\"\nused = \"1G\"\n"),
    ("# more of the quota\n", "[[quota]]\npool = \"{dir}/a.img\"\nused = \"1G\"\n"),
    ("# more of the quota\n", "[[quota]]\nowner = \"carol\"\nused = \"1G\"\n"),
    ("[[quota]]\nowner = \"bob\"\nprovisioned = \"20M\"\nused = \"12M\"\n", ""),
    ("seccomp = false", "seccomp = false\nroots = [\"{dir}\"]"),
    ("seccomp = false", "seccomp = false\nroots = [\"/srv\"]"),
    ("# more of the limits\n", "header_digest = \"require\"\n# more of the limits\n"),
    ("# more of the limits\n", "sessions_max = 3\n# more of the limits\n"),
];
