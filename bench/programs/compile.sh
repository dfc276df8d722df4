# A compiler over a source of many functions.
awk 'BEGIN { for (i = 0; i < 400; i++)
  printf "int f%d(int *a, int n) { int s = %d; for (int k = 0; k < n; k++) { if (a[k] > s) s += a[k] * %d; else s ^= a[(k * %d) %% n]; } return s; }\n", i, i, i + 3, i + 7 }' |
  cc -O1 -x c -S -o - - | cksum | sed 's/^/checksum /'
