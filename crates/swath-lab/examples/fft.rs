//! A simple fast Fourier transform, after the program of that name in the paper on virtual memory
//! with constant bounds (section V-A): "a simple fast fourier transformation which runs on a small
//! input vector".
//!
//! Transforms 2^20 complex numbers in place, by butterflies of two with a table of the roots of
//! unity; made to be recorded with `swath record heap`.

use std::f64::consts::TAU;

const COUNT: usize = 1 << 20;

#[derive(Clone, Copy, Default)]
struct Complex {
    re: f64,
    im: f64,
}

/// Transforms `data`, whose length is a power of two, with the first half of its roots of unity.
fn transform(data: &mut [Complex], roots: &[Complex]) {
    let bits = data.len().trailing_zeros();
    for at in 0..data.len() {
        let reversed = at.reverse_bits() >> (usize::BITS - bits);
        if at < reversed {
            data.swap(at, reversed);
        }
    }
    let mut half = 1;
    while half < data.len() {
        let step = data.len() / (2 * half);
        for block in data.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (at, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let root = roots[at * step];
                let product = Complex {
                    re: b.re * root.re - b.im * root.im,
                    im: b.re * root.im + b.im * root.re,
                };
                *b = Complex { re: a.re - product.re, im: a.im - product.im };
                *a = Complex { re: a.re + product.re, im: a.im + product.im };
            }
        }
        half *= 2;
    }
}

fn main() {
    let mut data: Vec<_> =
        (0..COUNT).map(|at| Complex { re: (at % 1024) as f64, im: 0.0 }).collect();
    let roots: Vec<_> = (0..COUNT / 2)
        .map(|at| TAU * at as f64 / COUNT as f64)
        .map(|angle| Complex { re: angle.cos(), im: -angle.sin() })
        .collect();
    transform(&mut data, &roots);
    // The first number is the sum of all, 2^20 times 511.5.
    println!("{:.3} {:.3}", data[0].re, data[1024].im);
    // In the order in which they were made.
    drop(data);
    drop(roots);
}
