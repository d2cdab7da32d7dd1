//! A caller that obeys overload: waits inside the window it was given, never before it, and passes overload up.
