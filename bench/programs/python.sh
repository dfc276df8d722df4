# Dictionaries, lists and strings of a scripting language: words are made, counted and sorted.
exec /usr/bin/python3 -S -E -c '
words = [str(i * 7919 % 10007) for i in range(300000)]
count = {}
for word in words: count[word] = count.get(word, 0) + 1
pairs = sorted((n, w) for w, n in count.items())
trees = [[w, [n, [w]]] for n, w in pairs * 10]
print("checksum", sum(len(t[1][1][0]) for t in trees) + len(" ".join(words)))'
