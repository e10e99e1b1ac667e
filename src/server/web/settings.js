// The system prompt, the sampling parameters, the schema of the answer and the tools. An empty field of sampling stands for the
// number that it shows in grey: what the server says is good for a chat. Where it says nothing the field is not sent, and the
// server's own default holds.
const Settings = (() => {
  let defaults = {};

  // name in the API, label, least, most, step, hint
  const kFields = [
    ['temperature', 'Temperature', 0, 2, 0.05, '0 always takes the likeliest token'],
    ['top_p', 'Top p', 0.01, 1, 0.01, 'share of probability to draw from'],
    ['top_k', 'Top k', 0, 1000000, 1, '0 draws from all tokens'],
    ['min_p', 'Min p', 0, 1, 0.01, 'drops tokens below this share of the likeliest'],
    ['max_tokens', 'Max tokens', 1, 10000000, 1, 'longest answer'],
    ['seed', 'Seed', 0, 9007199254740991, 1, 'the same seed repeats an answer'],
    ['presence_penalty', 'Presence penalty', -2, 2, 0.1, 'against words already used'],
    ['frequency_penalty', 'Frequency penalty', -2, 2, 0.1, 'against words used often'],
    ['repetition_penalty', 'Repetition penalty', 0.01, 10, 0.05, '1 is none'],
  ];
  const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

  // Fields that hold JSON: name, hint, what is wrong with a value ('': nothing), the parameters of the request for it.
  const kJson = [
    ['schema', 'a JSON Schema; the answer will fit it',
      (value) => (isObject(value) ? '' : 'a schema is an object'),
      (value) => ({response_format: {type: 'json_schema', json_schema: {name: 'answer', schema: value}}})],
    ['tools', 'a list of functions as OpenAI has them; calls are shown, not carried out',
      (value) => (Array.isArray(value) && value.every((tool) => isObject(tool) && isObject(tool.function)) ? '' : 'wanted: [{"type": "function", "function": {…}}]'),
      (value) => (value.length ? {tools: value} : {})],
  ];

  function valid([name, , least, most], value) {
    if (!Number.isFinite(value) || value < least || value > most) return false;
    return !['top_k', 'max_tokens', 'seed'].includes(name) || Number.isInteger(value);
  }

  // {value} of a JSON text, or {wrong}.
  function parse([, , judge], text) {
    try {
      const value = JSON.parse(text);
      const wrong = judge(value);
      return wrong ? {wrong} : {value};
    } catch (error) {
      return {wrong: error.message};
    }
  }

  // Only what is known and in range.
  function checked(raw) {
    const settings = {};
    if (!raw || typeof raw !== 'object') return settings;
    if (typeof raw.system === 'string') settings.system = raw.system;
    for (const field of kFields) if (valid(field, raw[field[0]])) settings[field[0]] = raw[field[0]];
    for (const field of kJson) if (typeof raw[field[0]] === 'string' && !parse(field, raw[field[0]]).wrong) settings[field[0]] = raw[field[0]];
    return settings;
  }

  // The parameters as the request has them.
  function parameters(settings) {
    const found = {};
    for (const [name] of kFields) {
      const value = settings[name] === undefined ? defaults[name] : settings[name];
      if (value !== undefined) found[name] = value;
    }
    for (const field of kJson) if (settings[field[0]]) Object.assign(found, field[3](parse(field, settings[field[0]]).value));
    return found;
  }

  function useDefaults(advised) {
    defaults = checked(advised);
    for (const [name] of kFields) byId('set-' + name).placeholder = defaults[name] === undefined ? 'default' : String(defaults[name]);
  }

  // Builds the fields once; `changed(settings)` is called after each edit, with what is valid.
  function mount(changed) {
    const inputs = new Map();
    for (const field of kFields) {
      const [name, label, least, most, step, hint] = field;
      const input = h('input', {id: 'set-' + name, type: 'number', inputmode: least < 0 ? 'text' : 'decimal', min: least, max: most,
        step: Number.isInteger(step) ? 1 : 'any', placeholder: 'default', 'aria-describedby': 'hint-' + name, autocomplete: 'off'});
      const note = h('small', {id: 'hint-' + name}, hint);
      byId('sampling-fields').append(h('div', {class: 'field'}, h('label', {for: input.id}, label), input, note));
      inputs.set(name, {field, input, note, hint});
    }
    const texts = kJson.map((field) => ({field, input: byId('set-' + field[0]), note: byId('hint-' + field[0]), hint: field[1]}));
    const judge = ({input, note, hint}, wrong) => {
      input.setAttribute('aria-invalid', String(wrong !== ''));
      note.textContent = wrong ? 'not used: ' + wrong : hint;
      return wrong === '';
    };
    const read = () => {
      const settings = {};
      if (byId('set-system').value.trim()) settings.system = byId('set-system').value;
      for (const [name, entry] of inputs) {
        const {field, input} = entry;
        const empty = input.value.trim() === '' && !input.validity.badInput;
        const bad = !empty && !valid(field, input.valueAsNumber);
        const range = `from ${field[2]} to ${field[3]}${field[4] === 1 ? ', whole' : ''}`;
        if (judge(entry, bad ? range : '') && !empty) settings[name] = input.valueAsNumber;
      }
      for (const entry of texts) {
        const text = entry.input.value.trim();
        if (judge(entry, text ? parse(entry.field, text).wrong || '' : '') && text) settings[entry.field[0]] = text;
      }
      changed(settings);
    };
    for (const {input} of [...inputs.values(), ...texts]) input.addEventListener('input', read);
    byId('set-system').addEventListener('input', read);
    byId('reset-sampling').addEventListener('click', () => {
      for (const {input} of inputs.values()) input.value = '';
      read();
    });
    return (settings) => {
      byId('set-system').value = settings.system || '';
      for (const {field, input, note, hint} of [...inputs.values(), ...texts]) {
        input.value = settings[field[0]] === undefined ? '' : settings[field[0]];
        input.removeAttribute('aria-invalid');
        note.textContent = hint;
      }
    };
  }

  return {checked, parameters, useDefaults, mount};
})();
