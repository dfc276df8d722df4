// The search over all claims: a row stays if it has every word.
(() => {
  const rows = [...document.querySelectorAll('.every tbody tr')];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const words = document.getElementById('words'), found = document.getElementById('found');
  const search = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(word => word);
    let count = 0;
    rows.forEach((row, nth) => {
      row.hidden = !wanted.every(word => texts[nth].includes(word));
      count += !row.hidden;
    });
    found.textContent = `${count} of ${rows.length} claims`;
  };
  document.getElementById('search').hidden = false;
  words.addEventListener('input', search);
  search();
})();
