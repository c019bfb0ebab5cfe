// Exponential moving average that starts without a bias; gaps stay gaps.

const USUAL_POINTS = 150; // for which the weight is meant: a curve of more is as smooth

export function smooth(values, weight) {
  if (!weight) return values;
  const keep = weight ** Math.min(1, USUAL_POINTS / values.length);
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = keep * sum + (1 - keep) * value;
    norm = keep * norm + (1 - keep);
    return sum / norm;
  });
}
