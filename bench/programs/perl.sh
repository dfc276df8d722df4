# Hashes, arrays and strings of a scripting language, as in python.sh.
exec perl -e '
my @words = map { $_ * 7919 % 10007 . "" } 0 .. 300000;
my %count; $count{$_}++ for @words;
my @trees = map { [$_, [$count{$_}, [$_ . "x"]]] } (sort keys %count) x 5;
my $sum = 0; $sum += length $_->[1][1][0] for @trees;
print "checksum ", $sum + length(join " ", @words), "\n"'
