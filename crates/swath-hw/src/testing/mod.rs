//! Naive models, which tests and fuzz targets hold the hardware against. Present with the feature
//! `testing`.

pub mod dram;
