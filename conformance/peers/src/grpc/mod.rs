//! The test service of the runner (`overload.test.v1.Echo`), by hand: every method of it is unary and takes and gives
//! one text, so there is nothing for a code generator to do, and building needs no protoc.

pub mod server;
pub mod wire;

use prost::Message;

/// The one message.
#[derive(Clone, PartialEq, Message)]
pub struct Text {
    /// What is said.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// How messages are written.
pub type Codec = tonic_prost::ProstCodec<Text, Text>;
