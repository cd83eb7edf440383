"""What SCSI commands and iSCSI requests are answered."""
