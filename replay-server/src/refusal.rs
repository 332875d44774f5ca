//! Every reason for which the shard refuses a call, and its gRPC status. Authentication, limits of connections and unknown
//! methods are refused before, in `rpc::gate`, `rpc::edge` and `router`.

use std::time::Duration;

use proto::{Invalid, PROTOCOL};
use replay::store::StorageError;
use replay::store::directory::DirectoryError;
use replay::{InsertError, LoadError, OptionsError};
use tonic::{Code, Status};

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The caller has another protocol version.
    #[error(
        "protocol version mismatch: this shard speaks protocol {PROTOCOL}, the caller {0}; run the same version of \
         quiver on both"
    )]
    ProtocolMismatch(u32),
    /// The caller is of another run.
    #[error(
        "this shard belongs to run {ours:?}, the caller to run {theirs:?}: give it the address of its own shard, or for a \
         new run start a shard with another --data-dir"
    )]
    WrongRun { ours: String, theirs: String },
    /// The caller wants another shard of the run, whose address has changed.
    #[error("this is shard {ours:?}, the caller wants {theirs:?}: ask the learner for that shard's address")]
    WrongShard { ours: String, theirs: String },
    /// A newer incarnation of the learner has replaced the caller.
    #[error("learner incarnation {given} was replaced by {newest}: stop the older learner")]
    LearnerReplaced {
        given: u32,
        /// The newest that called.
        newest: u32,
    },
    /// A shard cannot change its sizes and samplers.
    #[error(
        "this shard was created with {what} {ours}, not {theirs}: set it back, or give the shard an empty data directory"
    )]
    ConfigurationMismatch {
        /// The first field that differs.
        what: &'static str,
        ours: String,
        theirs: String,
    },
    /// The writer's frames have another format than the store's.
    #[error(
        "the writer's {what} is {theirs}, the store's is {ours}: start the writer with the run's configuration"
    )]
    FrameFormatMismatch {
        /// The first field that differs.
        what: &'static str,
        ours: String,
        theirs: String,
    },
    /// A chunk of another actor or incarnation than the stream's hello.
    #[error(
        "chunk of actor {actor} incarnation {incarnation} on the stream of another writer: open one stream per writer"
    )]
    OtherWriter { actor: u32, incarnation: u64 },
    /// The ticket of a hello is missing, of another identity or run, or of another key.
    #[error(
        "the ticket does not prove actor {actor} incarnation {incarnation} of this run: join the run again at its learner"
    )]
    UnprovenIdentity { actor: u32, incarnation: u64 },
    /// Nothing to issue a ticket with.
    #[error(
        "no client has configured this shard yet, so it issues no tickets: create the store, or retry later"
    )]
    NoTicketKey,
    /// The hello is missing, or repeated.
    #[error("the first message must be the hello, all others must be chunks")]
    ExpectedHello,
    /// The number of streams is limited, so one without a first message is closed.
    #[error("no first message within {0:?}: open the stream when there is data to send")]
    FirstMessageTimeout(Duration),
    /// Only one snapshot is taken at a time, so a caller that does not read it is cut off.
    #[error("the caller has read nothing for {0:?}: read faster, or start the snapshot again")]
    ReaderTimeout(Duration),
    #[error("not a valid message of this protocol: run the same version of quiver on both ends")]
    Malformed,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A chunk that does not fit to the stored ones.
    #[error(transparent)]
    Insert(#[from] InsertError),
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The configured tables need more memory than this process may use.
    #[error(
        "the store may grow to {bytes} bytes, but this shard is limited to {limit}: configure a smaller store, or \
         raise the shard's --memory-limit"
    )]
    TooMuchMemory { bytes: u64, limit: u64 },
    /// The reply would exceed the limit of a message.
    #[error("the reply would have more than {most} bytes: sample fewer items per request")]
    LargeReply { most: usize },
    /// The number of streams is limited.
    #[error("this shard serves {most} {kind} streams at most: {remedy}")]
    TooManyStreams { kind: &'static str, most: usize, remedy: &'static str },
    /// An actor has too many insert streams.
    #[error(
        "actor {actor} already has {most} insert streams to this shard, the maximum: close some, then retry"
    )]
    ActorStreams { actor: u32, most: usize },
    /// There are too many streams without a hello, and a newer one took the place of this one.
    #[error("{most} newer insert streams wait for their first message: send the hello at once, then retry")]
    PendingStreams { most: usize },
    /// The shard has had no grant yet.
    #[error("no learner has configured this shard yet: start a learner with the shard's address")]
    NotConfigured,
    #[error("this shard has no table {0}: 'quiver inspect' lists its tables")]
    NoSuchTable(String),
    #[error("no such item: it was evicted or never existed; 'quiver inspect --top 10' lists some items")]
    NoSuchItem,
    /// Snapshots are taken one at a time.
    #[error("another snapshot is in progress: retry when it is complete")]
    SnapshotInProgress,
    /// The data directory uses a codec that this build does not know.
    #[error(
        "the data directory uses codec {0:?}, which this version does not know: use the version of quiver that wrote it"
    )]
    Codec(String),
    /// A snapshot is only restored into an empty slot.
    #[error("the data directory already holds the replay of run {run:?}: restore into an empty directory")]
    Occupied { run: String },
    #[error("{0}")]
    Directory(String),
    /// A change of the shard that must be on disk before it is obeyed cannot be written. Nothing has changed.
    #[error("cannot {what} in the data directory: {why}; check the permissions and free space of --data-dir")]
    NotPersisted { what: &'static str, why: String },
    /// An error of the file system.
    #[error("cannot {what}: {why}")]
    Storage { what: String, why: String },
    #[error("the shard is stopping: retry later")]
    Stopping,
}

/// The class of a refusal, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The message can never be valid.
    Invalid,
    /// A newer incarnation replaced the caller.
    Fenced,
    Run,
    Protocol,
    /// The store does not fit, or does not exist.
    Table,
    /// More than the shard accepts.
    Limit,
    /// The caller does not prove who it is.
    Identity,
    /// A chunk that was stored before with other content.
    Conflict,
}

impl Reason {
    /// The label values, in the order of the variants.
    pub const NAMES: [&str; 8] =
        ["invalid", "fenced", "run", "protocol", "table", "limit", "identity", "conflict"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl Refusal {
    /// Wraps an I/O error with what was attempted.
    pub fn storage(what: &str) -> impl Fn(std::io::Error) -> Self {
        let what = what.to_owned();
        move |why| Refusal::Storage { what: what.clone(), why: why.to_string() }
    }

    /// Wraps an error of opening a store.
    pub fn store_error(error: StorageError) -> Self {
        match error {
            StorageError::Options(error) => Refusal::Options(error),
            StorageError::Io { name, bytes, source } => {
                let what = format!("allocate {bytes} bytes for the replay's {name}");
                Refusal::Storage { what, why: source.to_string() }
            }
        }
    }

    /// The only mapping from domain errors to gRPC statuses. `Stopping` and `NoTicketKey` are no errors, so they have no
    /// [`Reason`] and are not counted.
    fn classify(&self) -> (Code, Option<Reason>) {
        let (code, reason) = match self {
            Refusal::ProtocolMismatch(_) => (Code::FailedPrecondition, Reason::Protocol),
            Refusal::WrongRun { .. } => (Code::FailedPrecondition, Reason::Run),
            // Not permanent: the shard may have another address, or come back to this one.
            Refusal::WrongShard { .. } => (Code::NotFound, Reason::Run),
            Refusal::LearnerReplaced { .. } => (Code::FailedPrecondition, Reason::Fenced),
            Refusal::ConfigurationMismatch { .. } => (Code::FailedPrecondition, Reason::Table),
            Refusal::UnprovenIdentity { .. } => (Code::FailedPrecondition, Reason::Identity),
            Refusal::FrameFormatMismatch { .. }
            | Refusal::OtherWriter { .. }
            | Refusal::ExpectedHello
            | Refusal::Malformed
            | Refusal::Invalid(_) => (Code::InvalidArgument, Reason::Invalid),
            Refusal::Insert(error) => match error {
                InsertError::Fenced { .. } => (Code::FailedPrecondition, Reason::Fenced),
                InsertError::Conflict { .. } | InsertError::TooFarBehind { .. } => {
                    (Code::InvalidArgument, Reason::Conflict)
                }
                // A shortage: a newer incarnation of an actor frees the lanes of the older one.
                InsertError::LanesFull { .. } => (Code::Unavailable, Reason::Limit),
                InsertError::NumberTooLarge(_)
                | InsertError::Gap { .. }
                | InsertError::NotContiguous { .. }
                | InsertError::FrameSize { .. }
                | InsertError::KeyFrame { .. }
                | InsertError::Frames { .. }
                | InsertError::ChunkSize { .. }
                | InsertError::NoSteps
                | InsertError::NoSuchTable { .. }
                | InsertError::NotFinite { .. }
                | InsertError::OutOfEpisode { .. }
                | InsertError::ItemOrder { .. }
                | InsertError::ItemRange { .. }
                | InsertError::ItemLength { .. }
                | InsertError::ItemOfEarlierChunk { .. }
                | InsertError::ItemCrossesEnd { .. } => (Code::InvalidArgument, Reason::Invalid),
            },
            Refusal::Options(error) => match error {
                OptionsError::Memory { .. } => (Code::ResourceExhausted, Reason::Limit),
                OptionsError::Capacity(_)
                | OptionsError::Tables(_)
                | OptionsError::Name(_)
                | OptionsError::Stack(_)
                | OptionsError::FrameBytes(_)
                | OptionsError::MaxLength
                | OptionsError::BytesMax { .. }
                | OptionsError::Number { .. } => (Code::InvalidArgument, Reason::Invalid),
            },
            // Shortages, which end by themselves: the caller retries with backoff.
            Refusal::TooManyStreams { .. }
            | Refusal::ActorStreams { .. }
            | Refusal::PendingStreams { .. }
            | Refusal::SnapshotInProgress
            | Refusal::NotPersisted { .. } => (Code::Unavailable, Reason::Limit),
            Refusal::NotConfigured => (Code::Unavailable, Reason::Table),
            // A full disk does not become empty by itself, and a user who sees the reason at once can choose another.
            Refusal::TooMuchMemory { .. } | Refusal::LargeReply { .. } | Refusal::Storage { .. } => {
                (Code::ResourceExhausted, Reason::Limit)
            }
            Refusal::Codec(_) | Refusal::Occupied { .. } | Refusal::Directory(_) => {
                (Code::FailedPrecondition, Reason::Table)
            }
            Refusal::NoSuchTable(_) => (Code::InvalidArgument, Reason::Invalid),
            Refusal::NoSuchItem => (Code::NotFound, Reason::Invalid),
            // A retry may succeed: the caller or the network was slow.
            Refusal::FirstMessageTimeout(_) | Refusal::ReaderTimeout(_) => {
                (Code::DeadlineExceeded, Reason::Limit)
            }
            Refusal::NoTicketKey | Refusal::Stopping => return (Code::Unavailable, None),
        };
        (code, Some(reason))
    }

    pub fn reason(&self) -> Option<Reason> {
        self.classify().1
    }

    pub fn status(&self) -> Status {
        Status::new(self.classify().0, self.to_string())
    }
}

impl From<DirectoryError> for Refusal {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Io { what, source } => Refusal::NotPersisted { what, why: source.to_string() },
            other => Refusal::Directory(other.to_string()),
        }
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Io(source) => {
                Refusal::Storage { what: "read the snapshot".into(), why: source.to_string() }
            }
            LoadError::Storage(error) => Refusal::store_error(error),
            other => Refusal::Directory(other.to_string()),
        }
    }
}
