//! What an export is found to be when it is opened, at a server that listens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;

use super::super::open::{NbdFailure, OpenError};
use super::super::options::OwnServers;
use super::*;

const CAN_READ_ONLY: u16 = 1 << 1;

/// A socket that is gone with it.
struct Place(PathBuf);

impl Place {
    fn new() -> (Self, UnixListener) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tarn-nbd-open-{}-{count}", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        let listener = UnixListener::bind(&place.0).unwrap();
        (place, listener)
    }

    fn options(&self) -> NbdOptions {
        NbdOptions {
            server: NbdServer::Unix(self.0.clone()),
            export: String::new(),
            tls: None,
            connections: 1,
            cores: 1,
            retry: RETRY,
            read_only: false,
            thin: true,
            block_bytes: 512,
            own: Arc::default(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Serves until the client is gone.
fn serve(mut stream: UnixStream, mut server: Server) {
    let mut connection = Connection::default();
    let mut bytes = vec![0; 4096];
    loop {
        while server.step(&mut connection) {}
        let line: Vec<u8> = connection.line.drain(..).collect();
        if stream.write_all(&line).is_err() {
            return;
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => connection.receive(&bytes[..count]),
        }
    }
}

type Opened = Result<Arc<dyn SharedStore>, OpenError>;

fn open(change: impl FnOnce(&mut Server, &mut NbdOptions)) -> Opened {
    let (place, listener) = Place::new();
    let mut server = Server::new(CAN_ALL, true, 1 << 25);
    let mut options = place.options();
    change(&mut server, &mut options);
    thread::scope(|scope| {
        scope.spawn(|| serve(listener.accept().unwrap().0, server));
        options.open()
    })
}

fn reason(opened: Opened) -> String {
    opened.unwrap_err().reason.to_string()
}

#[test]
fn an_export_is_opened_as_its_server_says_it_is() {
    let pair = TlsPair::new();
    for (is_tls, is_read_only) in [(false, false), (false, true), (true, false)] {
        let store = open(|server, options| {
            server.size = 8192;
            options.read_only = is_read_only;
            if is_read_only {
                server.flags |= CAN_READ_ONLY;
            }
            if is_tls {
                server.tls = Some(Arc::clone(&pair.server));
                options.tls = Some(pair.options.clone());
            }
        });
        let handle = store.unwrap().handle().unwrap();
        let capabilities = handle.capabilities();
        assert_eq!(capabilities.size_bytes, 8192);
        assert_eq!(capabilities.block_bytes, 512);
        assert_eq!(capabilities.read_only, is_read_only);
    }
}

#[test]
fn an_export_that_can_be_no_disk_is_refused_with_a_remedy() {
    type Change = fn(&mut Server, &mut NbdOptions);
    let cases: [(Change, &str); 5] = [
        (
            |server, _| server.size = 0,
            "0 bytes are not a whole number of blocks of 512 bytes, at least one",
        ),
        (|server, _| server.size = 4608, ""),
        (
            |server, options| {
                server.size = 4608;
                options.block_bytes = 4096;
            },
            "4608 bytes are not a whole number of blocks of 4096 bytes, at least one",
        ),
        (
            |server, _| server.block_min = 4096,
            "its smallest block has 4096 bytes, the disk's has 512; add the option blocksize=4096",
        ),
        (
            |server, _| server.flags |= CAN_READ_ONLY,
            "the server exports it read-only; open it read-only",
        ),
    ];
    for (change, expected) in cases {
        match open(change) {
            Ok(_) => assert_eq!(expected, ""),
            Err(error) => assert_eq!(error.reason.to_string(), expected),
        }
    }
    let large = open(|server, options| {
        server.block_min = 8192;
        options.block_bytes = 4096;
    });
    assert!(reason(large).ends_with("such an export cannot be a disk"));
}

#[test]
fn tls_that_only_one_side_wants_is_refused_with_a_remedy() {
    let pair = TlsPair::new();
    let required = reason(open(|server, _| {
        server.tls = Some(Arc::clone(&pair.server))
    }));
    assert!(required.ends_with("; connect with TLS"), "{required}");
    let refused = reason(open(|_, options| options.tls = Some(pair.options.clone())));
    let remedy = "; connect without TLS, or have the server use it";
    assert!(refused.ends_with(remedy), "{refused}");
    let strangers = TlsPair::of_strangers();
    let opened = open(|server, options| {
        server.tls = Some(Arc::clone(&strangers.server));
        options.tls = Some(strangers.options.clone());
    });
    assert!(matches!(opened.unwrap_err().reason, NbdFailure::Tls(_)));
}

#[test]
fn what_is_no_server_of_nbd_is_refused() {
    for (greeting, is_understood) in [
        (&b""[..], false),
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], true),
    ] {
        let (place, listener) = Place::new();
        let options = place.options();
        let opened = thread::scope(|scope| {
            scope.spawn(|| listener.accept().unwrap().0.write_all(greeting).unwrap());
            options.open()
        });
        let reason = opened.unwrap_err().reason;
        let is_expected = match is_understood {
            true => matches!(reason, NbdFailure::Handshake(_)),
            false => matches!(reason, NbdFailure::BrokenOff(_)),
        };
        assert!(is_expected, "{reason}");
    }
    let (place, listener) = Place::new();
    drop(listener);
    let error = place.options().open().unwrap_err();
    assert!(matches!(error.reason, NbdFailure::Connect(_)), "{error}");
    let at = place.0.display();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{at}, export \"\": cannot connect"))
    );
}

/// Nothing has to be answered for it.
#[test]
fn an_export_of_this_very_program_is_refused_by_whatever_name() {
    let (place, _listener) = Place::new();
    let (other, _other_listener) = Place::new();
    let link = place.0.with_extension("link");
    std::os::unix::fs::symlink(&place.0, &link).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let own = Arc::new(OwnServers {
        portals: Vec::new(),
        addresses: vec![address],
        sockets: vec![PathBuf::from("/nowhere"), other.0.clone(), place.0.clone()],
    });
    for server in [
        NbdServer::Unix(place.0.clone()),
        NbdServer::Unix(link.clone()),
        NbdServer::tcp("127.0.0.1", Some(address.port())),
    ] {
        let mut options = place.options();
        options.server = server;
        options.own = Arc::clone(&own);
        let error = options.open().unwrap_err();
        assert!(matches!(error.reason, NbdFailure::Own), "{error}");
    }
    std::fs::remove_file(link).unwrap();
}

#[test]
fn a_server_is_named_by_host_and_port() {
    for (server, expected) in [
        (NbdServer::tcp("san.example", None), "san.example:10809"),
        (NbdServer::tcp("2001:db8::1", Some(1)), "[2001:db8::1]:1"),
        (NbdServer::Unix("/run/nbd".into()), "/run/nbd"),
    ] {
        assert_eq!(server.to_string(), expected);
    }
}
