//! Commands to a SCSI device of this machine, through its node of the generic driver (`/dev/sgN`).

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

/// `SG_IO`.
///
/// Spec: scsi/sg.h.
const SG_IO: libc::Ioctl = 0x2285;
/// `SG_DXFER_NONE`, `SG_DXFER_TO_DEV`, `SG_DXFER_FROM_DEV`.
const NONE: c_int = -1;
const TO_DEVICE: c_int = -2;
const FROM_DEVICE: c_int = -3;
/// Sense data, in bytes.
///
/// Spec: SPC-5 section 4.5.1.
const SENSE_BYTES_MAX: usize = 252;

/// What the kernel is asked, and what it answers.
///
/// Spec: scsi/sg.h, struct sg_io_hdr.
#[repr(C)]
struct Header {
    interface_id: c_int,
    direction: c_int,
    cdb_bytes: c_uchar,
    sense_bytes_max: c_uchar,
    iovec_count: c_ushort,
    data_bytes: c_uint,
    data: *mut c_void,
    cdb: *mut c_uchar,
    sense: *mut c_uchar,
    timeout_ms: c_uint,
    flags: c_uint,
    pack_id: c_int,
    user_pointer: *mut c_void,
    status: c_uchar,
    masked_status: c_uchar,
    message_status: c_uchar,
    sense_bytes: c_uchar,
    host_status: c_ushort,
    driver_status: c_ushort,
    residual: c_int,
    duration_ms: c_uint,
    info: c_uint,
}

/// The data of a command.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// There are none.
    None,
    /// Data-Out.
    Out(&'a [u8]),
    /// Room for Data-In.
    In(&'a mut [u8]),
}

/// What became of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// STATUS, as SAM has it.
    pub status: u8,
    /// Sense data, if the device gave any.
    pub sense: Vec<u8>,
    /// What the host adapter says of it (`DID_OK` is 0).
    pub host_status: u16,
    /// What the driver says of it; sense data are the bit 8.
    pub driver_status: u16,
    /// How many bytes less than the length of the data were moved.
    pub residual: i32,
}

/// Has a device carry out a command, and waits for its end.
///
/// # Errors
///
/// The kernel does not take it (`ENODEV` where the device is gone), or a signal has ended the wait, which says nothing
/// of the command (`EINTR`).
pub fn execute(
    device: BorrowedFd<'_>,
    cdb: &[u8],
    transfer: Transfer<'_>,
    timeout_ms: u32,
) -> io::Result<Answer> {
    let mut sense = [0; SENSE_BYTES_MAX];
    let too_long = |_| io::Error::from_raw_os_error(libc::E2BIG);
    // The kernel reads what it sends, though its struct has one address for both directions.
    let (direction, data, length) = match transfer {
        Transfer::None => (NONE, ptr::null_mut(), 0),
        Transfer::Out(bytes) => (TO_DEVICE, bytes.as_ptr().cast_mut().cast(), bytes.len()),
        Transfer::In(bytes) => (FROM_DEVICE, bytes.as_mut_ptr().cast(), bytes.len()),
    };
    let mut header = Header {
        interface_id: c_int::from(b'S'),
        direction,
        cdb_bytes: c_uchar::try_from(cdb.len()).map_err(too_long)?,
        sense_bytes_max: c_uchar::try_from(sense.len()).map_err(too_long)?,
        iovec_count: 0,
        data_bytes: c_uint::try_from(length).map_err(too_long)?,
        data,
        cdb: cdb.as_ptr().cast_mut(),
        sense: sense.as_mut_ptr(),
        timeout_ms,
        flags: 0,
        pack_id: 0,
        user_pointer: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_bytes: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: the header is that of the kernel, and its addresses are of the lengths beside them: the CDB and the data
    // of Data-Out are only read, and all of them live until the call returns, after which the kernel keeps none.
    let asked = unsafe { libc::ioctl(device.as_raw_fd(), SG_IO, &raw mut header) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let sense_bytes = usize::from(header.sense_bytes);
    Ok(Answer {
        status: header.status,
        sense: sense.get(..sense_bytes).unwrap_or(&sense).to_vec(),
        host_status: header.host_status,
        driver_status: header.driver_status,
        residual: header.residual,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::mem::{offset_of, size_of};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_header_is_that_of_the_kernel() {
        assert_eq!(size_of::<Header>(), 88);
        assert_eq!(offset_of!(Header, data), 16);
        assert_eq!(offset_of!(Header, timeout_ms), 40);
        assert_eq!(offset_of!(Header, user_pointer), 56);
        assert_eq!(offset_of!(Header, status), 64);
        assert_eq!(offset_of!(Header, residual), 72);
    }

    #[test]
    fn what_is_no_device_carries_nothing_out() {
        let file = File::open("/dev/null").unwrap();
        let error = execute(file.as_fd(), &[0; 6], Transfer::None, 1000).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        let error = execute(file.as_fd(), &[0; 256], Transfer::None, 1000).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    }
}
