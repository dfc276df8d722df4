//! Stand-ins for the kernel's files: a machine of a few frames, and its trace buffer.

use std::fs;

use super::room::Room;

/// Frames of the machine.
const FRAMES: usize = 20;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn put(room: &Room, name: &str, bytes: impl AsRef<[u8]>) {
    let path = room.path("root").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The files of which a snapshot is made.
pub(crate) fn proc(room: &Room) {
    put(room, "proc/sys/kernel/osrelease", "1.2.3\n");
    put(room, "proc/iomem", "00001000-000087ff : System RAM\n00010000-00017fff : System RAM\n");
    let sums = ["MemTotal: 64", "MemFree: 16", "VmallocUsed: 8", "KernelStack: 4", "Percpu: 4"];
    put(room, "proc/meminfo", sums.map(|sum| format!("{sum} kB\n")).concat());
    put(room, "proc/buddyinfo", "Node 0, zone      DMA      1      1 \n");
    let zone = "Node 0, zone      DMA\n  pages free     3\n        spanned  24\n        \
                present  16\n        managed  15\n  start_pfn:           1\n";
    put(room, "proc/zoneinfo", zone);
    let types = "Number of blocks type     Unmovable      Movable \nNode 0, zone      DMA            1            0 \n";
    put(room, "proc/pagetypeinfo", types);
    let mut flags = [0; FRAMES];
    flags[1..4].fill(1 << 10);
    put(room, "proc/kpageflags", words(&flags));
}

/// Events, and the number of each in the buffer.
const EVENTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_pcpu_drain",
    "mm_page_alloc_zone_locked",
    "mm_page_alloc_extfrag",
];

/// Fields of all events, in words of 64 bits behind the first.
const FIELDS: [&str; 10] = [
    "pfn",
    "order",
    "migratetype",
    "gfp_flags",
    "percpu_refill",
    "alloc_order",
    "fallback_order",
    "alloc_migratetype",
    "fallback_migratetype",
    "change_ownership",
];

/// A trace buffer in which a frame was allocated and freed.
pub(crate) fn tracefs(room: &Room) {
    fs::create_dir_all(room.path("root/sys/kernel/tracing/instances")).unwrap();
    let field = |name: &str, offset: usize, size: usize| {
        format!("\tfield:u64 {name};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    };
    let header = field("timestamp", 0, 8) + &field("commit", 8, 8) + &field("data", 16, 4080);
    put(room, "instance/events/header_page", header);
    let places = FIELDS.iter().zip(1..).map(|(name, word)| field(name, 8 * word, 8));
    let fields: String = places.collect();
    for (number, event) in EVENTS.iter().enumerate() {
        let format = format!("ID: {number}\nformat:\n{}{fields}", field("common_type", 0, 8));
        put(room, &format!("instance/events/kmem/{event}/format"), format);
        put(room, &format!("instance/events/kmem/{event}/enable"), "0");
    }
    let settings = ["tracing_on", "trace_clock", "buffer_size_kb", "buffer_percent"];
    for name in settings.iter().chain(&["options/event-fork", "set_event_pid"]) {
        put(room, &format!("instance/{name}"), "");
    }
    let event = |number: u64| {
        let len_words = 2 * (1 + FIELDS.len() as u32);
        let head =
            if cfg!(target_endian = "big") { len_words << 27 | 5 } else { len_words | 5 << 5 };
        let mut fields = [0; 1 + FIELDS.len()];
        (fields[0], fields[1]) = (number, 77);
        [&head.to_ne_bytes()[..], &words(&fields)].concat()
    };
    let data = [event(0), event(1)].concat();
    let page = [words(&[1000, data.len() as u64]), data].concat();
    put(room, "instance/per_cpu/cpu0/trace_pipe_raw", page);
    put(room, "instance/per_cpu/cpu0/stats", "overrun: 0\n");
}
