//! A tape drive in memory that obeys its test.

use super::answer::{Answer, check, good};

/// What it has and does.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    pub(crate) records: Vec<Vec<u8>>,
    /// Of the record that is next.
    pub(crate) position: usize,
    /// Commands that move the tape wait.
    pub(crate) holds: bool,
    /// The next command ends with this.
    pub(crate) says: Option<Answer>,
    /// Each command that it was given, but for INQUIRY: the whole CDB.
    pub(crate) seen: Vec<Vec<u8>>,
    /// It is no tape drive any more, but of this type.
    pub(crate) other_type: Option<u8>,
}

impl Tape {
    /// Carries a command out; `None`: it waits.
    pub(crate) fn execute(
        &mut self,
        cdb: &[u8],
        data: &[u8],
        designator: &[u8; 16],
    ) -> Option<Answer> {
        let moves = matches!(cdb[0], 0x01 | 0x08 | 0x0a);
        if moves && self.holds {
            return None;
        }
        if cdb[0] != 0x12 {
            self.seen.push(cdb.to_vec());
        }
        if let Some(answer) = self.says.take_if(|_| moves) {
            return Some(answer);
        }
        let length = u32::from_be_bytes([0, cdb[2], cdb[3], cdb[4]]) as usize;
        Some(match (cdb[0], cdb[1] & 0x1f) {
            (0x00, _) => check(2, 0x3a, 0, 0),
            (0x01, _) => {
                self.position = 0;
                good(Vec::new())
            }
            (0x08, _) => self.read(length),
            (0x0a, _) => {
                self.records.truncate(self.position);
                self.records.push(data.to_vec());
                self.position += 1;
                good(Vec::new())
            }
            (0x12, 0) => {
                let mut standard = vec![0; 36];
                standard[0] = self.other_type.unwrap_or(1);
                standard[1] = 0x80;
                standard[8..36].copy_from_slice(b"TARN    TAPE OF A TEST  0001");
                good(standard)
            }
            (0x12, _) => match cdb[2] {
                0x00 => good(vec![1, 0, 0, 1, 0x83]),
                0x83 => {
                    let mut page = vec![1, 0x83, 0, 20, 1, 3, 0, 16];
                    page.extend(designator);
                    good(page)
                }
                _ => check(5, 0x24, 0, 0),
            },
            (0xa3, 0x0c) => {
                let mut list = vec![0, 0, 0, 16];
                list.extend([0x08, 0, 0, 0, 0, 0, 0, 6]);
                list.extend([0xa3, 0, 0, 0x0c, 0, 1, 0, 12]);
                good(list)
            }
            _ => check(5, 0x20, 0, 0),
        })
    }

    /// A record that is shorter or longer than was expected comes with ILI.
    fn read(&mut self, length: usize) -> Answer {
        let Some(record) = self.records.get(self.position) else {
            return check(8, 0x00, 0x05, 0);
        };
        self.position += 1;
        let information = (length as u64).wrapping_sub(record.len() as u64);
        let bytes = information.to_be_bytes();
        let information = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut answer = check(0, 0, 0, information);
        answer.sense[2] |= 0x20;
        if record.len() == length {
            answer = good(Vec::new());
        }
        answer.data.clone_from(record);
        answer
    }
}
