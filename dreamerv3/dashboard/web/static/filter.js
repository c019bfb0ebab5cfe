// The filter of runs: a regular expression over what is known of them.

// {expression, error}: one of them is null.
export function compileFilter(text) {
  try {
    return { expression: new RegExp(text, 'im'), error: null };
  } catch (error) {
    return { expression: null, error: explain(text, error) };
  }
}

// values: {option: value} of the columns of the table.
export function matches(expression, run, values) {
  const columns = Object.entries(values).map(([name, value]) => `${name}=${value}`);
  const { name, folder, task, state, notes } = run;
  // One line each, so that ^ and $ stand for the ends of a name.
  return expression.test([name, folder, task, state, notes, ...columns].join('\n'));
}

function explain(text, error) {
  const reason = error.message.replace(`Invalid regular expression: /${text}/im: `, '');
  return `Not a regular expression: ${reason}. The last valid one applies. ` +
    'Write \\ in front of . * + ? ( ) [ ] to look for these characters.';
}
