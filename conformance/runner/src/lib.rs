//! Judges any client or server against the overload contract, from outside, in any language.
