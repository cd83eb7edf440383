//! Why an interface of this machine cannot be used.

/// Why an interface cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InterfaceProblem {
    /// There is none of this name.
    #[error("there is no interface {name:?}; this machine has {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It takes no frames.
    #[error("interface {name} is down; run ip link set {name} up")]
    Down {
        /// The name.
        name: String,
    },
    /// It is not one of Ethernet.
    #[error("interface {name} does not carry frames of Ethernet; name another one, or use udp")]
    NoEthernet {
        /// The name.
        name: String,
    },
    /// Its frames are too small.
    #[error(
        "interface {name} has an MTU of {mtu}, HyperSCSI needs {min}; run ip link set {name} mtu {min}, or more"
    )]
    SmallMtu {
        /// The name.
        name: String,
        /// What it has.
        mtu: u32,
        /// What is needed.
        min: u16,
    },
    /// This process has no right to it.
    #[error(
        "frames of interface {name} need CAP_NET_RAW, which this process does not have; start Tarn as root or by its \
         systemd unit with AmbientCapabilities=CAP_NET_RAW, or use udp"
    )]
    NoRight {
        /// The name.
        name: String,
    },
    /// This process has given up the right, and has no free socket of that interface.
    #[error(
        "frames of interface {name} are taken only where Tarn took them when it started; restart Tarn, or use udp"
    )]
    Restart {
        /// The name.
        name: String,
        /// There are such sockets, which may be given up in a moment.
        is_in_use: bool,
    },
    /// The system does not give it.
    #[error("interface {name}: {error}; look at ip link")]
    Failed {
        /// The name.
        name: String,
        /// What the system says.
        error: String,
    },
}
