/* Four structures under YCSB's workloads, as in the paper's figure 8: a hash map of lists, a
 * vector, a priority queue and the library's unordered map, loaded with 100,000 records and then
 * given YCSB's core workloads A to F (Cooper and others, SoCC 2010) one after the other.
 * Each thread has its part of the records in a structure of its own. A record is
 * ten fields of 100 bytes in one string; an update makes a new one.
 *
 * structures hashmap|vector|queue|unordered THREADS RECORDS OPERATIONS */
#include <algorithm>
#include <cmath>
#include <list>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.h"

namespace {

constexpr std::size_t record_bytes = 1000;

std::string record(std::uint64_t key, std::uint64_t version) {
    std::string text(record_bytes, static_cast<char>('a' + (key + version) % 26));
    return text;
}

/* YCSB's generator: rank r of n with a probability as 1 / r^0.99 (Gray and others, Quickly
 * Generating Billion-Record Synthetic Databases, SIGMOD 1994). */
class Zipfian {
  public:
    explicit Zipfian(std::uint64_t count) : count_(count) {
        for (std::uint64_t rank = 1; rank <= count; rank++) zeta_ += std::pow(1.0 / rank, theta);
        double zeta2 = 1 + std::pow(0.5, theta);
        alpha_ = 1 / (1 - theta);
        eta_ = (1 - std::pow(2.0 / count, 1 - theta)) / (1 - zeta2 / zeta_);
    }

    std::uint64_t next(std::uint64_t &random) const {
        double u = static_cast<double>(next_random(&random) >> 11) / 9007199254740992.0;
        double uz = u * zeta_;
        if (uz < 1) return 0;
        if (uz < 1 + std::pow(0.5, theta)) return 1;
        auto rank = static_cast<std::uint64_t>(count_ * std::pow(eta_ * u - eta_ + 1, alpha_));
        return std::min(rank, count_ - 1);
    }

  private:
    static constexpr double theta = 0.99;
    std::uint64_t count_;
    double zeta_ = 0, alpha_, eta_;
};

/* FNV-1a, by which YCSB scatters the ranks over the keys. */
std::uint64_t scatter(std::uint64_t rank) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < 8; i++, rank >>= 8) hash = (hash ^ (rank & 255)) * 0x100000001B3u;
    return hash;
}

/* What a workload needs of a structure. Keys are 0, 1, 2, … as they were inserted. */
struct HashMap {
    using Entry = std::pair<std::uint64_t, std::string>;
    std::vector<std::list<Entry>> buckets = std::vector<std::list<Entry>>(64);
    std::size_t size = 0;

    std::list<Entry> &bucket(std::uint64_t key) {
        return buckets[scatter(key) & (buckets.size() - 1)];
    }
    void insert(std::uint64_t key, std::string text) {
        if (++size > buckets.size()) {
            std::vector<std::list<Entry>> old(buckets.size() * 2);
            std::swap(old, buckets);
            for (auto &list : old)
                while (!list.empty()) {
                    auto &to = bucket(list.front().first);
                    to.splice(to.begin(), list, list.begin());
                }
        }
        bucket(key).emplace_front(key, std::move(text));
    }
    std::string *find(std::uint64_t key) {
        for (auto &entry : bucket(key))
            if (entry.first == key) return &entry.second;
        return nullptr;
    }
};

struct Vector {
    std::vector<std::string> records;
    void insert(std::uint64_t, std::string text) { records.push_back(std::move(text)); }
    std::string *find(std::uint64_t key) { return key < records.size() ? &records[key] : nullptr; }
};

struct Unordered {
    std::unordered_map<std::uint64_t, std::string> map;
    void insert(std::uint64_t key, std::string text) { map.emplace(key, std::move(text)); }
    std::string *find(std::uint64_t key) {
        auto at = map.find(key);
        return at == map.end() ? nullptr : &at->second;
    }
};

/* A queue by key and version: only its first record can be read or changed, so an update takes
 * it out and puts it back behind the others. */
struct Queue {
    struct Entry {
        std::uint64_t order;
        std::unique_ptr<std::string> text;
        bool operator<(const Entry &other) const { return order > other.order; }
    };
    std::priority_queue<Entry> queue;
    std::uint64_t last = 0;
    void insert(std::uint64_t, std::string text) {
        queue.push({last++, std::make_unique<std::string>(std::move(text))});
    }
    std::string *find(std::uint64_t) {
        Entry first{last++, std::move(const_cast<Entry &>(queue.top()).text)};
        queue.pop();
        queue.push(std::move(first));
        return queue.top().text.get();
    }
};

struct Part {
    std::uint64_t seed, sum;
    unsigned long records, operations;
};

/* Read, update, insert, scan, read-modify-write, in hundredths; whether the latest records
 * are the ones wanted most. */
struct Workload {
    unsigned read, update, insert, scan, modify;
    bool latest;
};
constexpr Workload workloads[] = {
    {50, 50, 0, 0, 0, false}, {95, 5, 0, 0, 0, false}, {100, 0, 0, 0, 0, false},
    {95, 0, 5, 0, 0, true},   {0, 0, 5, 95, 0, false}, {50, 0, 0, 0, 50, false},
};

template <class Structure> void *run(void *argument) {
    Part &part = *static_cast<Part *>(argument);
    Structure structure;
    std::uint64_t random = part.seed, count = part.records, version = 1, sum = 0;
    Zipfian zipfian(count);
    for (std::uint64_t key = 0; key < count; key++) structure.insert(key, record(key, 0));
    auto read = [&](std::uint64_t key) {
        /* The reader gets a copy, as over an interface. */
        if (std::string *text = structure.find(key)) {
            std::string copy = *text;
            sum += static_cast<unsigned char>(copy[key % record_bytes]);
        }
    };
    for (const Workload &workload : workloads)
        for (unsigned long i = 0; i < part.operations; i++) {
            std::uint64_t rank = zipfian.next(random);
            std::uint64_t key = workload.latest ? count - 1 - rank : scatter(rank) % count;
            unsigned chosen = random_below(&random, 100);
            if (chosen < workload.read) {
                read(key);
            } else if (chosen < workload.read + workload.update) {
                if (std::string *text = structure.find(key)) *text = record(key, version++);
            } else if (chosen < workload.read + workload.update + workload.insert) {
                structure.insert(count, record(count, 0));
                count++;
            } else if (workload.scan != 0) {
                std::uint64_t end = std::min(count, key + 1 + random_below(&random, 100));
                for (; key < end; key++) read(key);
            } else {
                read(key);
                if (std::string *text = structure.find(key)) *text = record(key, version++);
            }
        }
    part.sum = sum;
    return nullptr;
}

} // namespace

int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "hashmap";
    unsigned long threads = argument(argc, argv, 2, 1);
    unsigned long records = argument(argc, argv, 3, 100000);
    unsigned long operations = argument(argc, argv, 4, 100000);
    std::vector<Part> parts(threads);
    for (unsigned long i = 0; i < threads; i++)
        parts[i] = {i, 0, records / threads, operations / threads};
    void *(*work)(void *) = name == "hashmap"     ? run<HashMap>
                            : name == "vector"    ? run<Vector>
                            : name == "queue"     ? run<Queue>
                            : name == "unordered" ? run<Unordered>
                                                  : nullptr;
    if (work == nullptr) fail("no such structure");
    run_threads(threads, work, parts.data(), sizeof(Part));
    std::uint64_t sum = 0;
    for (const Part &part : parts) sum += part.sum;
    report(sum);
    return 0;
}
