//! The core beside an interpreter of its instructions: random programs, and all that they write to the host.

use swath_arch::testing::Random;
use swath_hw::RtLatency;

use crate::machine::{self, Host, Memories};

/// Registers that the random instructions do not write: the handler's own, the host's address, that of some memory.
const HANDLER: u32 = 29;
const HOST: u32 = 30;
const MEMORY: u32 = 31;

/// Where the random loads and stores go, and the words of memory there.
const MEMORY_AT: u32 = 0x000f_0000;
const HOST_AT: u32 = 0x1000_0000;

/// The words of the handler, at address 0x10; the random instructions follow.
const HANDLER_AT: u32 = 0x10;

/// An instruction without effect, and the words that the others jump at most.
const NOTHING: u32 = 0x0000_0013;
const JUMP_WORDS: usize = 8;

fn immediate(op: u32, rd: u32, f3: u32, rs1: u32, imm: u32) -> u32 {
    (imm & 0xfff) << 20 | rs1 << 15 | f3 << 12 | rd << 7 | op
}

fn register(f7: u32, rs2: u32, rs1: u32, f3: u32, rd: u32) -> u32 {
    f7 << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | rd << 7 | 0x33
}

fn store(f3: u32, rs1: u32, rs2: u32, imm: u32) -> u32 {
    (imm >> 5 & 0x7f) << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | (imm & 0x1f) << 7 | 0x23
}

fn branch(f3: u32, rs1: u32, rs2: u32, offset: u32) -> u32 {
    (offset >> 12 & 1) << 31
        | (offset >> 5 & 0x3f) << 25
        | rs2 << 20
        | rs1 << 15
        | f3 << 12
        | (offset >> 1 & 0xf) << 8
        | (offset >> 11 & 1) << 7
        | 0x63
}

fn jump(rd: u32, offset: u32) -> u32 {
    (offset >> 20 & 1) << 31
        | (offset >> 1 & 0x3ff) << 21
        | (offset >> 11 & 1) << 20
        | (offset >> 12 & 0xff) << 12
        | rd << 7
        | 0x6f
}

/// The pairs of funct7 and funct3 of two registers, and those of a register and a number with their number.
const OF_REGISTERS: [(u32, u32); 20] = [
    (0x00, 0),
    (0x20, 0),
    (0x00, 1),
    (0x00, 2),
    (0x00, 3),
    (0x00, 4),
    (0x00, 5),
    (0x20, 5),
    (0x00, 6),
    (0x00, 7),
    (0x20, 4),
    (0x20, 6),
    (0x20, 7),
    (0x05, 4),
    (0x05, 5),
    (0x05, 6),
    (0x05, 7),
    (0x30, 1),
    (0x30, 5),
    (0x04, 4),
];
const UNARY: [(u32, u32); 7] =
    [(0x600, 1), (0x601, 1), (0x602, 1), (0x604, 1), (0x605, 1), (0x287, 5), (0x698, 5)];

/// Writes a random program of so many instructions and some more.
fn program(random: &mut Random, instructions: usize) -> Vec<u32> {
    let mut words = vec![
        HOST_AT | HOST << 7 | 0x37,
        MEMORY_AT | MEMORY << 7 | 0x37,
        immediate(0x13, HANDLER, 0, 0, HANDLER_AT),
        // Over the handler.
        jump(0, 10 * 4),
        // The handler tells cause, value and place, and goes on behind the instruction.
        immediate(0x73, HANDLER, 2, 0, 0x342),
        store(2, HOST, HANDLER, 4),
        immediate(0x73, HANDLER, 2, 0, 0x343),
        store(2, HOST, HANDLER, 8),
        immediate(0x73, HANDLER, 2, 0, 0x341),
        store(2, HOST, HANDLER, 12),
        immediate(0x13, HANDLER, 0, HANDLER, 4),
        immediate(0x73, 0, 1, HANDLER, 0x341),
        0x3020_0073,
    ];
    words.push(immediate(0x13, HANDLER, 0, 0, HANDLER_AT));
    words.push(immediate(0x73, 0, 1, HANDLER, 0x305));
    // Every word of memory that is read was written, and every register has a value.
    for word in 0..64 {
        words.push(store(2, MEMORY, 0, 4 * word));
    }
    for at in 1..HANDLER {
        words.push((random.word() as u32 & 0xffff_f000) | at << 7 | 0x37);
        words.push(immediate(0x13, at, 0, at, random.word() as u32));
    }
    let end = words.len() + instructions;
    while words.len() < end {
        let (rd, rs1, rs2) =
            (random.below(29) as u32, random.below(32) as u32, random.below(32) as u32);
        let number = random.word() as u32;
        let f3 = random.below(8) as u32;
        match random.below(16) {
            0..=3 => {
                let (f7, f3) = OF_REGISTERS[random.index(OF_REGISTERS.len())];
                words.push(register(f7, if f7 == 4 { 0 } else { rs2 }, rs1, f3, rd));
            }
            4..=5 if f3 != 1 && f3 != 5 => words.push(immediate(0x13, rd, f3, rs1, number)),
            6 => {
                let (upper, f3) = [(0x000, 1), (0x000, 5), (0x400, 5), (0x600, 5)][random.index(4)];
                words.push(immediate(0x13, rd, f3, rs1, upper | number & 0x1f));
            }
            7 => {
                let (imm, f3) = UNARY[random.index(UNARY.len())];
                words.push(immediate(0x13, rd, f3, rs1, imm));
            }
            8 => words.push(number & 0xffff_f000 | rd << 7 | if f3 < 4 { 0x37 } else { 0x17 }),
            // Of any width, at any byte; some have no such width.
            9 => words.push(immediate(0x03, rd, f3, MEMORY, number & 0xff)),
            10 => words.push(store(f3 & 3, MEMORY, rs2, number & 0xff)),
            11 => words.push(branch(f3, rs1, rs2, 4 + (number & 0x1c))),
            12 => match f3 {
                0..=3 => words.push(jump(rd, 4 + (number & 0x1c))),
                // To the place after it, by a register; at times one that is no place. No jump leads between the two.
                _ => {
                    words.extend([NOTHING; JUMP_WORDS]);
                    words.push(28 << 7 | 0x17);
                    words.push(immediate(0x67, rd, 0, 28, [8, 9, 12, 10][random.index(4)]));
                }
            },
            13 => words.push(immediate(0x73, rd, [1, 2, 3, 5, 6, 7][random.index(6)], rs1, 0x340)),
            // A call of nobody; and any word that is no jump and has a harmless destination.
            14 => words.push(match f3 {
                0 => 0x0000_0073,
                1 => 0x0010_0073,
                2 => 0x0000_000f,
                _ => {
                    number & !0xfff
                        | rd << 7
                        | [0x13, 0x33, 0x03, 0x5b, 0x00, 0x3b][random.index(6)]
                }
            }),
            _ => words.push(store(2, HOST, rs2, 20)),
        }
        if words.last().is_some_and(|word| word & 0x7f == 0x03) {
            // A load of any word comes from this memory.
            let last = words.last_mut().expect("there is one");
            *last = *last & !(0x1f << 15 | 0xf00 << 20) | MEMORY << 15;
        }
    }
    // Where the last jumps may lead.
    words.extend([NOTHING; JUMP_WORDS]);
    words.extend((1..HANDLER).map(|at| store(2, HOST, at, 20)));
    words.push(store(2, HOST, 0, 0));
    words
}

/// The program's words to the host.
type Said = Vec<(u32, u32)>;

struct Listener(Said);

impl Host for Listener {
    fn read(&mut self, _: u32, _: &Memories) -> u32 {
        0
    }

    fn write(&mut self, register: u32, value: u32, _: &Memories) {
        self.0.push((register, value));
    }
}

/// The interpreter: RV32I and Zbb by the text of the specification, one instruction a step.
struct Interpreter {
    words: Vec<u32>,
    x: [u32; 32],
    pc: u32,
    mtvec: u32,
    mscratch: u32,
    mepc: u32,
    mcause: u32,
    mtval: u32,
    said: Said,
}

/// Cause and value of a trap.
type Trap = (u32, u32);

impl Interpreter {
    fn new(program: &[u32]) -> Self {
        let mut words = program.to_vec();
        words.resize(1 << 18, 0);
        let said = Vec::new();
        Self { words, x: [0; 32], pc: 0, mtvec: 0, mscratch: 0, mepc: 0, mcause: 0, mtval: 0, said }
    }

    fn load(&self, at: u32, bytes: u32) -> u32 {
        let word = self.words[(at / 4) as usize] >> (8 * (at & 3));
        if bytes == 4 { word } else { word & ((1 << (8 * bytes)) - 1) }
    }

    fn store(&mut self, at: u32, bytes: u32, value: u32) {
        if at >= HOST_AT {
            self.said.push((at - HOST_AT, value));
            return;
        }
        let mask = if bytes == 4 { u32::MAX } else { (1 << (8 * bytes)) - 1 };
        let shift = 8 * (at & 3);
        let word = &mut self.words[(at / 4) as usize];
        *word = *word & !(mask << shift) | (value & mask) << shift;
    }

    /// Returns what two operands give, `None` for no instruction; `number` is the field of the second register
    /// where there is none.
    fn compute(f7: u32, f3: u32, a: u32, b: u32, number: Option<u32>) -> Option<u32> {
        let (signed_a, signed_b) = (a as i32, b as i32);
        Some(match (f7, f3, number) {
            (0x00, 0, None) => a.wrapping_add(b),
            (0x20, 0, None) => a.wrapping_sub(b),
            (0x00, 1, _) => a << (b & 31),
            (0x00, 2, None) => (signed_a < signed_b).into(),
            (0x00, 3, None) => (a < b).into(),
            (0x00, 4, None) => a ^ b,
            (0x00, 5, _) => a >> (b & 31),
            (0x20, 5, _) => (signed_a >> (b & 31)) as u32,
            (0x00, 6, None) => a | b,
            (0x00, 7, None) => a & b,
            (0x20, 4, None) => !(a ^ b),
            (0x20, 6, None) => a | !b,
            (0x20, 7, None) => a & !b,
            (0x05, 4, None) => signed_a.min(signed_b) as u32,
            (0x05, 5, None) => a.min(b),
            (0x05, 6, None) => signed_a.max(signed_b) as u32,
            (0x05, 7, None) => a.max(b),
            (0x30, 1, None) => a.rotate_left(b & 31),
            (0x30, 5, _) => a.rotate_right(b & 31),
            (0x30, 1, Some(0)) => a.leading_zeros(),
            (0x30, 1, Some(1)) => a.trailing_zeros(),
            (0x30, 1, Some(2)) => a.count_ones(),
            (0x30, 1, Some(4)) => a as i8 as u32,
            (0x30, 1, Some(5)) => a as i16 as u32,
            (0x14, 5, Some(7)) => {
                u32::from_le_bytes(a.to_le_bytes().map(|byte| if byte == 0 { 0 } else { 0xff }))
            }
            (0x34, 5, Some(24)) => a.swap_bytes(),
            _ => return None,
        })
    }

    fn csr(&mut self, number: u32) -> Option<&mut u32> {
        Some(match number {
            0x305 => &mut self.mtvec,
            0x340 => &mut self.mscratch,
            0x341 => &mut self.mepc,
            0x342 => &mut self.mcause,
            0x343 => &mut self.mtval,
            _ => return None,
        })
    }

    /// Makes an instruction; returns where the next one is.
    fn execute(&mut self, word: u32) -> Result<u32, Trap> {
        let illegal = (2, word);
        let (rd, f3, f7) = ((word >> 7 & 31) as usize, word >> 12 & 7, word >> 25);
        let (a, b) = (self.x[(word >> 15 & 31) as usize], self.x[(word >> 20 & 31) as usize]);
        let imm = (word as i32 >> 20) as u32;
        let next = self.pc.wrapping_add(4);
        let aligned =
            |target: u32| if target.is_multiple_of(4) { Ok(target) } else { Err((0, target)) };
        let (result, target) = match word & 0x7f {
            0x37 => (word & !0xfff, next),
            0x17 => (self.pc.wrapping_add(word & !0xfff), next),
            0x6f => {
                let offset = (word as i32 >> 31) as u32 & !0xf_ffff
                    | word & 0xf_f000
                    | (word >> 20 & 1) << 11
                    | (word >> 21 & 0x3ff) << 1;
                (next, aligned(self.pc.wrapping_add(offset))?)
            }
            0x67 if f3 == 0 => (next, aligned(a.wrapping_add(imm) & !1)?),
            0x63 => {
                let taken = match f3 {
                    0 => a == b,
                    1 => a != b,
                    4 => (a as i32) < b as i32,
                    5 => a as i32 >= b as i32,
                    6 => a < b,
                    7 => a >= b,
                    _ => return Err(illegal),
                };
                let offset = (word as i32 >> 31) as u32 & !0xfff
                    | (word >> 7 & 1) << 11
                    | (word >> 25 & 0x3f) << 5
                    | (word >> 8 & 0xf) << 1;
                return aligned(if taken { self.pc.wrapping_add(offset) } else { next });
            }
            0x03 => {
                let at = a.wrapping_add(imm);
                let bytes = match f3 {
                    0 | 4 => 1,
                    1 | 5 => 2,
                    2 => 4,
                    _ => return Err(illegal),
                };
                if at % bytes != 0 {
                    return Err((4, at));
                }
                let word = self.load(at, bytes);
                let result = match f3 {
                    0 => word as i8 as u32,
                    1 => word as i16 as u32,
                    _ => word,
                };
                (result, next)
            }
            0x23 => {
                let offset = (word as i32 >> 25 << 5) as u32 | word >> 7 & 31;
                let at = a.wrapping_add(offset);
                if f3 > 2 {
                    return Err(illegal);
                }
                if at % (1 << f3) != 0 {
                    return Err((6, at));
                }
                self.store(at, 1 << f3, b);
                return Ok(next);
            }
            0x13 => {
                let result = match f3 {
                    1 | 5 => Self::compute(f7, f3, a, imm & 31, Some(imm & 31)),
                    _ => Self::compute(0, f3, a, imm, None),
                };
                (result.ok_or(illegal)?, next)
            }
            // zext.h has no second register.
            0x33 if f7 == 4 && f3 == 4 && word >> 20 & 31 == 0 => (a & 0xffff, next),
            0x33 => (Self::compute(f7, f3, a, b, None).ok_or(illegal)?, next),
            0x0f => return Ok(next),
            0x73 if f3 & 3 == 0 => {
                return match word {
                    0x0000_0073 => Err((11, 0)),
                    0x0010_0073 => Err((3, 0)),
                    0x3020_0073 => Ok(self.mepc),
                    _ => Err(illegal),
                };
            }
            0x73 => {
                let operand = if f3 & 4 != 0 { word >> 15 & 31 } else { a };
                let csr = self.csr(word >> 20).ok_or(illegal)?;
                let before = *csr;
                *csr = match f3 & 3 {
                    1 => operand,
                    2 => before | operand,
                    _ => before & !operand,
                };
                (before, next)
            }
            _ => return Err(illegal),
        };
        if rd != 0 {
            self.x[rd] = result;
        }
        Ok(target)
    }

    /// Runs until the program ends; returns the instructions that it took.
    ///
    /// # Panics
    /// If they are more than `steps_max`.
    fn run(&mut self, steps_max: u64) -> u64 {
        let mut steps = 0;
        while self.said.last().is_none_or(|&(register, _)| register != 0) {
            steps += 1;
            assert!(steps <= steps_max, "the program does not end");
            let word = self.words[(self.pc / 4) as usize];
            self.pc = match self.execute(word) {
                Ok(next) => next,
                Err((cause, value)) => {
                    (self.mepc, self.mcause, self.mtval) = (self.pc, cause, value);
                    self.mtvec
                }
            };
        }
        steps
    }
}

/// Runs random programs on the core and on the interpreter; returns the instructions and the words to the host.
///
/// # Panics
/// At the first word that differs.
pub fn run(programs: u64, instructions: usize, seed: u64) -> (u64, usize) {
    let (mut steps, mut said) = (0, 0);
    let memories = Memories::new();
    for seed in (0..programs).map(|n| seed.wrapping_add(n)) {
        let program = program(&mut Random::new(seed), instructions);
        let mut model = Interpreter::new(&program);
        let limit = 20 * instructions as u64 + 10_000;
        steps += model.run(limit);
        let mut listener = Listener(Vec::new());
        let latency = RtLatency::PAPER;
        let ended = machine::run(false, latency, &program, &memories, &mut listener, limit);
        let pairs = model.said.iter().zip(&listener.0).enumerate();
        for (at, (expected, found)) in pairs {
            assert_eq!(
                expected, found,
                "program {seed}: word {at} to the host, by the model and by the core"
            );
        }
        assert_eq!((ended.is_some(), listener.0.len()), (true, model.said.len()), "program {seed}");
        said += model.said.len();
    }
    (steps, said)
}
