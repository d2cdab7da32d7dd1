//! AdmissionLayer: refuse work at the door of any tower service, with a hint.
