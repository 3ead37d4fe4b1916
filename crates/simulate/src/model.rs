//! The analytical model of allocation until one colour is full (PAGING, section 3).
