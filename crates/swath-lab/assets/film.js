// The film: a button, a slider and the moment in words over the animation that plays without them.
(() => {
  document.querySelectorAll('figure[data-film]').forEach(figure => {
    const { seconds, moments, says } = JSON.parse(figure.dataset.film);
    const svg = figure.querySelector('svg'), last = moments.length - 1, step = 1000 * seconds / moments.length;
    const rolls = svg.getAnimations({ subtree: true });
    if (!rolls.length) return;
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const make = (name, more) => Object.assign(document.createElement(name), more);
    const bar = make('div', { className: 'controls' });
    const button = make('button', { type: 'button' });
    const slider = make('input', { type: 'range', min: 0, max: last, step: 1 });
    const words = make('output');
    slider.setAttribute('aria-label', 'Moment');
    bar.append(button, slider, words);
    svg.after(bar);

    const now = () => Math.min(last, Math.floor((rolls[0].currentTime % (1000 * seconds)) / step));
    const tell = () => {
      const nth = now();
      if (words.value === moments[nth]) return;
      slider.value = nth;
      words.value = moments[nth];
      slider.setAttribute('aria-valuetext', `${moments[nth]}, ${says[nth]}`);
    };
    const show = nth => rolls.forEach(roll => { roll.currentTime = (nth + 0.5) * step; });
    let playing = false;
    const follow = () => {
      tell();
      if (playing) requestAnimationFrame(follow);
    };
    const play = on => {
      playing = on;
      rolls.forEach(roll => on ? roll.play() : roll.pause());
      button.textContent = on ? 'Pause' : 'Play';
      follow();
    };
    rolls.forEach(roll => roll.effect.updateTiming({ delay: 0 }));
    show(still ? last : 0);
    play(!still);
    button.addEventListener('click', () => play(!playing));
    slider.addEventListener('input', () => {
      play(false);
      show(Number(slider.value));
      tell();
    });
  });
})();
