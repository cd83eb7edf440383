//! Code tables: one enum per field of RFC 7143 that holds a code.
//!
//! `from_code` answers `None` for a value without a meaning, so that the caller has to decide;
//! `code` gives the wire value back.

/// Defines an enum over the values of one wire field, with both conversions and the whole list.
macro_rules! wire_codes {
    (
        $(#[$meta:meta])*
        $name:ident: $int:ty {
            $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr($int)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $value,)*
        }

        impl $name {
            /// Every value that has a meaning, in the order of the standard.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The meaning of a wire value, if it has one.
            #[must_use]
            pub const fn from_code(code: $int) -> Option<Self> {
                match code {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The wire value.
            #[must_use]
            pub const fn code(self) -> $int {
                self as $int
            }
        }
    };
}

wire_codes! {
    /// Opcodes, without the immediate bit.
    ///
    /// Spec: RFC 7143 section 11.2.1.2.
    Opcode: u8 {
        /// NOP-Out.
        NopOut = 0x00,
        /// SCSI Command.
        ScsiCommand = 0x01,
        /// Task Management Function Request.
        TaskManagementRequest = 0x02,
        /// Login Request.
        LoginRequest = 0x03,
        /// Text Request.
        TextRequest = 0x04,
        /// SCSI Data-Out.
        DataOut = 0x05,
        /// Logout Request.
        LogoutRequest = 0x06,
        /// SNACK Request.
        Snack = 0x10,
        /// NOP-In.
        NopIn = 0x20,
        /// SCSI Response.
        ScsiResponse = 0x21,
        /// Task Management Function Response.
        TaskManagementResponse = 0x22,
        /// Login Response.
        LoginResponse = 0x23,
        /// Text Response.
        TextResponse = 0x24,
        /// SCSI Data-In.
        DataIn = 0x25,
        /// Logout Response.
        LogoutResponse = 0x26,
        /// Ready To Transfer.
        R2t = 0x31,
        /// Asynchronous Message.
        AsyncMessage = 0x32,
        /// Reject.
        Reject = 0x3f,
    }
}

impl Opcode {
    /// True when an initiator sends this PDU.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.code() & 0x20 == 0
    }
}

wire_codes! {
    /// How a command is ordered among the other commands of its task set.
    ///
    /// Spec: RFC 7143 section 11.3.1.
    TaskAttribute: u8 {
        /// No attribute given; treated as simple.
        Untagged = 0,
        /// SIMPLE.
        Simple = 1,
        /// ORDERED.
        Ordered = 2,
        /// HEAD OF QUEUE.
        HeadOfQueue = 3,
        /// ACA.
        Aca = 4,
    }
}

wire_codes! {
    /// Response field of a SCSI Response.
    ///
    /// Spec: RFC 7143 section 11.4.3.
    IscsiResponse: u8 {
        /// Command completed at target; the SCSI status is valid.
        CommandCompleted = 0x00,
        /// Target failure; the SCSI status is not valid.
        TargetFailure = 0x01,
    }
}

wire_codes! {
    /// Task management functions; the last four need iSCSIProtocolLevel 2.
    ///
    /// Spec: RFC 7143 section 11.5.1, RFC 7144 section 4.2.
    TaskManagementFunction: u8 {
        /// ABORT TASK.
        AbortTask = 1,
        /// ABORT TASK SET.
        AbortTaskSet = 2,
        /// CLEAR ACA.
        ClearAca = 3,
        /// CLEAR TASK SET.
        ClearTaskSet = 4,
        /// LOGICAL UNIT RESET.
        LogicalUnitReset = 5,
        /// TARGET WARM RESET.
        TargetWarmReset = 6,
        /// TARGET COLD RESET.
        TargetColdReset = 7,
        /// TASK REASSIGN.
        TaskReassign = 8,
        /// QUERY TASK.
        QueryTask = 9,
        /// QUERY TASK SET.
        QueryTaskSet = 10,
        /// I_T NEXUS RESET.
        ItNexusReset = 11,
        /// QUERY ASYNCHRONOUS EVENT.
        QueryAsynchronousEvent = 12,
    }
}

wire_codes! {
    /// Response field of a task management function response.
    ///
    /// Spec: RFC 7143 section 11.6.1, RFC 7144 section 4.3.
    TaskManagementResponse: u8 {
        /// Function complete.
        Complete = 0,
        /// Task does not exist.
        TaskDoesNotExist = 1,
        /// LUN does not exist.
        LunDoesNotExist = 2,
        /// Task still allegiant.
        TaskStillAllegiant = 3,
        /// Task allegiance reassignment not supported.
        ReassignmentNotSupported = 4,
        /// Task management function not supported.
        NotSupported = 5,
        /// Function authorization failed.
        AuthorizationFailed = 6,
        /// Function succeeded (RFC 7144).
        Succeeded = 7,
        /// Function rejected.
        Rejected = 255,
    }
}

wire_codes! {
    /// Reasons of a Reject. 0x0b is deprecated and not listed.
    ///
    /// Spec: RFC 7143 section 11.17.1.
    RejectReason: u8 {
        /// Data (payload) digest error; the PDU may be sent again.
        DataDigestError = 0x02,
        /// SNACK Reject; the PDU may be sent again.
        SnackReject = 0x03,
        /// Protocol error.
        ProtocolError = 0x04,
        /// Command not supported.
        CommandNotSupported = 0x05,
        /// Immediate command reject: too many immediate commands.
        ImmediateCommandReject = 0x06,
        /// Task in progress.
        TaskInProgress = 0x07,
        /// Invalid DataACK.
        InvalidDataAck = 0x08,
        /// Invalid PDU field.
        InvalidPduField = 0x09,
        /// Long operation reject: no resources for a target transfer tag.
        LongOperationReject = 0x0a,
        /// Waiting for logout.
        WaitingForLogout = 0x0c,
    }
}

wire_codes! {
    /// Events of an Asynchronous Message.
    ///
    /// Spec: RFC 7143 section 11.9.1.
    AsyncEvent: u8 {
        /// A SCSI asynchronous event; sense data is in the data segment.
        ScsiEvent = 0,
        /// The target wants a logout within Parameter3 seconds.
        LogoutRequest = 1,
        /// The target will drop connection Parameter1.
        ConnectionDrop = 2,
        /// The target will drop all connections of the session.
        SessionDrop = 3,
        /// The target wants a text negotiation within Parameter3 seconds.
        NegotiationRequest = 4,
        /// All tasks of a nexus end (FastAbort).
        TaskTermination = 5,
        /// Vendor specific.
        VendorSpecific = 255,
    }
}

wire_codes! {
    /// Reasons of a Logout Request.
    ///
    /// Spec: RFC 7143 section 11.14.1.
    LogoutReason: u8 {
        /// Close the session with all its connections.
        CloseSession = 0,
        /// Close the connection that the CID names.
        CloseConnection = 1,
        /// Remove the connection that the CID names for recovery.
        RemoveConnectionForRecovery = 2,
    }
}

wire_codes! {
    /// Response field of a Logout Response.
    ///
    /// Spec: RFC 7143 section 11.15.1.
    LogoutResponseCode: u8 {
        /// Closed successfully.
        Success = 0,
        /// CID not found.
        CidNotFound = 1,
        /// Connection recovery is not supported.
        RecoveryNotSupported = 2,
        /// Cleanup failed.
        CleanupFailed = 3,
    }
}

wire_codes! {
    /// Types of a SNACK Request.
    ///
    /// Spec: RFC 7143 section 11.16.1.
    SnackType: u8 {
        /// Data-In PDUs or R2Ts are missing.
        DataOrR2t = 0,
        /// Status PDUs are missing.
        Status = 1,
        /// Acknowledges Data-In PDUs.
        DataAck = 2,
        /// Data-In PDUs are missing and may be cut in another way.
        RData = 3,
    }
}

wire_codes! {
    /// Stages of a login, the values of CSG and NSG.
    ///
    /// Spec: RFC 7143 section 11.12.3.
    LoginStage: u8 {
        /// Security negotiation.
        SecurityNegotiation = 0,
        /// Operational negotiation.
        OperationalNegotiation = 1,
        /// Full feature phase; only ever a next stage.
        FullFeaturePhase = 3,
    }
}

wire_codes! {
    /// Status class (high byte) and detail (low byte) of a Login Response.
    ///
    /// Spec: RFC 7143 section 11.13.5.
    LoginStatus: u16 {
        /// Login goes on, or is done.
        Success = 0x0000,
        /// The target moved for a while; TargetAddress says where.
        TargetMovedTemporarily = 0x0101,
        /// The target moved for good; TargetAddress says where.
        TargetMovedPermanently = 0x0102,
        /// Some other fault of the initiator.
        InitiatorError = 0x0200,
        /// Authentication failed.
        AuthenticationFailure = 0x0201,
        /// This initiator may not use this target.
        AuthorizationFailure = 0x0202,
        /// No such target here.
        NotFound = 0x0203,
        /// The target was here and is gone.
        TargetRemoved = 0x0204,
        /// No common protocol version.
        UnsupportedVersion = 0x0205,
        /// Too many connections in this session.
        TooManyConnections = 0x0206,
        /// A mandatory key is missing.
        MissingParameter = 0x0207,
        /// This session does not span this connection.
        CannotIncludeInSession = 0x0208,
        /// This SessionType is not served.
        SessionTypeNotSupported = 0x0209,
        /// The TSIH names no session.
        SessionDoesNotExist = 0x020a,
        /// Something other than a proper Login Request came during login.
        InvalidRequestDuringLogin = 0x020b,
        /// Fault of the target.
        TargetError = 0x0300,
        /// The target does not work just now.
        ServiceUnavailable = 0x0301,
        /// The target is out of some resource.
        OutOfResources = 0x0302,
    }
}

impl LoginStatus {
    /// Status-Class and Status-Detail, bytes 36 and 37 of the response.
    #[must_use]
    pub const fn class_and_detail(self) -> (u8, u8) {
        let [class, detail] = self.code().to_be_bytes();
        (class, detail)
    }

    /// The status of these two bytes, if it is listed.
    #[must_use]
    pub const fn from_class_and_detail(class: u8, detail: u8) -> Option<Self> {
        Self::from_code(u16::from_be_bytes([class, detail]))
    }
}
