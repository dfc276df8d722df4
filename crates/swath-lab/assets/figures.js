// Figures to work with: values under the pointer, a legend that switches series, zoom by dragging,
// intervals as bands, the paper's numbers as marks. Drawn by uPlot from the data that stands at each
// figure; without it, and in print, the drawing stays. Bars and maps keep their drawing.
(() => {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const short = value => value == null ? '–' : Number(value.toPrecision(5)).toLocaleString('en');
  const power = value => {
    const exponent = Math.log2(value);
    return Number.isInteger(exponent) && exponent < 14 ? String(value) : short(value);
  };
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // One table of x, y and, where a series has intervals, their ends.
  const tables = plot => plot.series.map(one => {
    const columns = [[], [], [], []];
    // A value without a spread is both ends of its interval.
    for (const [x, y, low = y, high = y] of one.points)
      [x, y, low, high].forEach((value, nth) => columns[nth].push(value));
    return columns;
  });

  const marks = (u, plot) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = variable('--text');
    ctx.setLineDash([6, 4]);
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const mark of plot.marks) {
      const y = u.valToPos(mark.y, 'y', true);
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.fillText(mark.says, bbox.left + 4, y - 4);
    }
    ctx.restore();
  };

  const draw = (figure, plot, place) => {
    const colour = one => dark.matches ? one.dark : one.light;
    const parts = tables(plot);
    const hasBand = plot.series.map(one => one.points.some(point => point.length > 2));
    const joined = uPlot.join(parts.map((columns, nth) =>
      hasBand[nth] ? columns : columns.slice(0, 2)));
    const series = [{ label: plot.x, value: (u, x) => x != null && plot.log ? power(x) : short(x) }];
    const bands = [], edges = {};
    plot.series.forEach((one, nth) => {
      const stroke = colour(one), at = series.length;
      series.push({
        label: one.name, stroke, width: 2, spanGaps: true,
        paths: plot.cloud ? () => null : undefined,
        points: { show: plot.cloud || one.points.length <= 40, size: 7, fill: stroke },
        value: (u, y, si, idx) => {
          const low = hasBand[nth] && idx != null ? u.data[at + 1][idx] : null;
          return y == null ? '–' : short(y) +
            (low == null ? '' : ` (${short(low)} to ${short(u.data[at + 2][idx])})`);
        },
      });
      if (hasBand[nth]) {
        const edge = () => ({ class: 'edge', stroke, width: 0.5, spanGaps: true, points: { show: false } });
        series.push(edge(), edge());
        bands.push({ series: [at + 2, at + 1], fill: stroke + '33' });
        edges[at] = [at + 1, at + 2];
      }
    });
    const values = plot.series.flatMap(one => one.points.flatMap(point => point.slice(1)))
      .concat(plot.marks.map(mark => mark.y));
    let [low, high] = plot.range ?? [Math.min(0, ...values), Math.max(...values)];
    low = Math.min(low, ...values);
    high = Math.max(high, ...values);
    const pad = plot.range ? 0 : (high - low) * 0.05 || 1;
    const axis = { stroke: variable('--text'), grid: { stroke: variable('--line'), width: 1 },
      ticks: { stroke: variable('--line') }, font: '13px system-ui, sans-serif' };
    const chart = new uPlot({
      width: place.clientWidth, height: 270, series, bands,
      scales: {
        x: { time: false, distr: plot.log ? 3 : 1, log: 2 },
        y: { range: (u, from, to) => u.zoomed ? [from, to] : [low, high + pad] },
      },
      axes: [
        { ...axis, label: plot.x, labelSize: 20, labelFont: axis.font,
          values: (u, splits) => splits.map(x => x == null ? null : plot.log ? power(x) : short(x)) },
        { ...axis, size: 62, values: (u, splits) => splits.map(short) },
      ],
      cursor: { drag: { x: true, y: false }, focus: { prox: 24 } },
      focus: { alpha: 0.35 },
      hooks: {
        draw: [u => marks(u, plot)],
        setSeries: [(u, at, state) => {
          if (state.show != null && edges[at]) edges[at].forEach(edge => u.setSeries(edge, { show: state.show }));
          u.root.querySelectorAll('.u-series').forEach((row, nth) =>
            row.querySelector('th[role]')?.setAttribute('aria-pressed', String(u.series[nth].show)));
        }],
      },
    }, joined, place);
    chart.root.querySelectorAll('.u-series:not(:first-child):not(.edge) th').forEach(name => {
      name.tabIndex = 0;
      name.setAttribute('role', 'button');
      name.setAttribute('aria-pressed', 'true');
      name.addEventListener('keydown', event => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        name.click();
      });
    });
    return chart;
  };

  // The pointer by keys: left and right step through the points, Escape shows all again.
  const keys = (place, chart) => event => {
    const u = chart(), last = u.data[0].length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.target !== place) return;
    if (event.key === 'Escape') u.setScale('x', { min: u.data[0][0], max: u.data[0][last] });
    if (!(event.key in steps)) return;
    event.preventDefault();
    const at = Math.min(last, Math.max(0, (u.cursor.idx ?? -1) + steps[event.key]));
    u.setCursor({ left: u.valToPos(u.data[0][at], 'x'), top: u.over.clientHeight / 2 });
  };

  // What takes the place of a drawing, for the pointer and for keys.
  const stage = (svg, name) => {
    const place = document.createElement('div');
    place.className = name;
    place.tabIndex = 0;
    place.setAttribute('role', 'group');
    place.setAttribute('aria-label',
      `${svg.querySelector('title').textContent}. Arrow keys read the values.`);
    return place;
  };

  const begin = figure => {
    const plot = JSON.parse(figure.dataset.plot);
    if (!plot.series.some(one => one.points.length)) return;
    const svg = figure.querySelector('svg'), place = stage(svg, 'plot');
    const unit = document.createElement('p');
    unit.className = 'quiet unit';
    unit.textContent = plot.y;
    svg.before(unit, place);
    figure.classList.add('drawn');
    let chart = draw(figure, plot, place);
    place.addEventListener('keydown', keys(place, () => chart));
    dark.addEventListener('change', () => { chart.destroy(); chart = draw(figure, plot, place); });
    new ResizeObserver(() => {
      if (place.clientWidth && place.clientWidth !== chart.width)
        chart.setSize({ width: place.clientWidth, height: 270 });
    }).observe(place);
  };

  // Bars and maps stay as they are drawn: the value under the pointer, or at the keys' place, stands below.
  const read = figure => {
    const { x, inside: [left, top, width, height], names, range, series } = JSON.parse(figure.dataset.cells);
    const svg = figure.querySelector('svg'), bars = names.length > 0;
    const [low, high] = bars ? [0, names.length] : range;
    const place = stage(svg, 'read'), says = document.createElement('output');
    says.className = 'quiet reading';
    const hint = 'Point, tap or press arrow keys for values.';
    says.textContent = hint;
    svg.before(place);
    place.append(svg);
    place.after(says);
    const mark = document.createElementNS(svg.namespaceURI, 'rect');
    mark.setAttribute('class', 'mark');
    const across = width / (high - low), rows = height / series.length;
    // Places in the reading order of the keys: left to right, and up and down between the series.
    let row = 0, nth = -1;
    const points = series.map(one => [...one.points].sort((a, b) => a[0] - b[0]));
    const show = () => {
      const point = points[row]?.[nth];
      if (!point) { mark.remove(); says.textContent = hint; return; }
      const [at, value, from, to] = point;
      const box = bars
        ? [left + across * (at + 0.1 + 0.8 * row / series.length), top, across * 0.8 / series.length, height]
        : [left + across * (at - low), top + rows * row, across, rows];
      ['x', 'y', 'width', 'height'].forEach((name, i) => mark.setAttribute(name, box[i]));
      svg.append(mark);
      says.textContent = `${bars ? names[at] : `${x} ${short(at)}`}, ${series[row].name}: ${short(value)}` +
        (from == null ? '' : ` (${short(from)} to ${short(to)})`);
    };
    const under = event => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const right = (event.clientX - box.left) * scale - left, down = (event.clientY - box.top) * scale - top;
      const at = low + right / across;
      nth = -1;
      if (right >= 0 && right < width && down >= 0 && down < height) {
        const within = (at - Math.floor(at) - 0.1) / 0.8 * series.length;
        row = bars ? Math.min(series.length - 1, Math.max(0, Math.floor(within))) : Math.floor(down / rows);
        nth = points[row].findIndex(point => bars ? point[0] === Math.floor(at) : at >= point[0] && at < point[0] + 1);
      }
      show();
    };
    svg.addEventListener('pointermove', under);
    svg.addEventListener('pointerdown', under);
    svg.addEventListener('pointerleave', () => { nth = -1; show(); });
    place.addEventListener('keydown', event => {
      const across = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === 'Escape') { nth = -1; show(); }
      if (across == null && down == null) return;
      event.preventDefault();
      if (down != null) {
        const at = points[row][nth]?.[0];
        row = (row + down + series.length) % series.length;
        nth = at == null ? 0 : points[row].findIndex(point => point[0] === at);
      }
      nth = Math.min(points[row].length - 1, Math.max(0, nth + (across ?? 0)));
      show();
    });
  };

  // One after the other, so that the page answers meanwhile.
  const figures = [...document.querySelectorAll('figure:is([data-plot], [data-cells])')];
  const next = () => {
    const figure = figures.shift();
    if (!figure) return;
    figure.dataset.plot ? begin(figure) : read(figure);
    setTimeout(next);
  };
  next();
})();
