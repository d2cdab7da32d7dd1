#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdoff_fuzz::body(data));
