//! What a device of a test answers.

/// What a command came to.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) sense: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

pub(super) fn good(data: Vec<u8>) -> Answer {
    Answer {
        data,
        ..Answer::default()
    }
}

pub(super) fn check(key: u8, code: u8, qualifier: u8, information: u32) -> Answer {
    let mut sense = vec![0xf0, 0, key];
    sense.extend(information.to_be_bytes());
    sense.extend([10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]);
    Answer {
        status: 2,
        sense,
        data: Vec::new(),
    }
}
