//! Page placement policies.
