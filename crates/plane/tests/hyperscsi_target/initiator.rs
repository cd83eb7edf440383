//! As much of an iSCSI initiator as it takes to give one command after the other.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::host::TARGET;
use crate::{ATTENTIONS_MAX, PATIENCE};

pub(crate) struct Initiator {
    stream: TcpStream,
    cmd_sn: u32,
}

impl Initiator {
    pub(crate) fn login(address: SocketAddr) -> Self {
        let keys =
            format!("InitiatorName=iqn.2026-11.example:host\0TargetName={TARGET}\0").into_bytes();
        let mut pdu = vec![0; 48];
        (pdu[0], pdu[1]) = (0x43, 0x87);
        pdu[7] = u8::try_from(keys.len()).unwrap();
        pdu[8] = 0x80;
        pdu.extend(&keys);
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut initiator = Self { stream, cmd_sn: 0 };
        initiator.stream.write_all(&pdu).unwrap();
        let response = initiator.read().0;
        let outcome = (response[0], response[36], response[37]);
        assert_eq!(outcome, (0x23, 0, 0), "login response");
        initiator
    }

    fn read(&mut self) -> ([u8; 48], Vec<u8>) {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let length = usize::try_from(length).unwrap();
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(length);
        (header, data)
    }

    /// Reads the first block, behind its unit attentions. Gives status and data.
    pub(crate) fn read_block(&mut self) -> (u8, Vec<u8>) {
        let (status, _, data) = self.run(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512);
        (status, data)
    }

    /// A command to LUN 0, behind its unit attentions, with these data out or so much room for data in. Gives status,
    /// sense data and data.
    pub(crate) fn run(&mut self, cdb: &[u8], out: &[u8], room: u32) -> (u8, Vec<u8>, Vec<u8>) {
        for _ in 0..ATTENTIONS_MAX {
            let length = u32::try_from(out.len()).unwrap();
            let mut pdu = vec![0; 48];
            // Final, with its direction; SIMPLE.
            let direction = u8::from(room > 0) << 6 | u8::from(length > 0) << 5;
            (pdu[0], pdu[1]) = (0x01, 0x81 | direction);
            pdu[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
            pdu[16..20].copy_from_slice(&self.cmd_sn.to_be_bytes());
            pdu[20..24].copy_from_slice(&length.max(room).to_be_bytes());
            pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
            pdu[32..32 + cdb.len()].copy_from_slice(cdb);
            pdu.extend(out);
            pdu.resize(pdu.len().next_multiple_of(4), 0);
            self.cmd_sn += 1;
            self.stream.write_all(&pdu).unwrap();
            let mut bytes = Vec::new();
            let (status, sense) = loop {
                let (header, data) = self.read();
                match header[0] {
                    // With the status, where the flag says so.
                    0x25 => {
                        bytes.extend(data);
                        if header[1] & 1 != 0 {
                            break (header[3], Vec::new());
                        }
                    }
                    // Behind the length of the sense data.
                    0x21 => break (header[3], data.get(2..).unwrap_or_default().to_vec()),
                    _ => {}
                }
            };
            let is_attention = status == 2 && sense.get(2).is_some_and(|key| key & 0xf == 6);
            if !is_attention {
                return (status, sense, bytes);
            }
        }
        panic!("unit attentions have no end");
    }
}
