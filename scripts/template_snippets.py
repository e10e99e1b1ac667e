"""Small templates, one or more for each feature of the template language. Rendered with VARIABLES by
make_template_goldens.py. Some fail on purpose: then it is the error that has to be equal."""

VARIABLES = {
    "n": 7,
    "f": 2.5,
    "t": True,
    "nothing": None,
    "s": "Hello World",
    "empty": "",
    "uni": "Grüße, 世界 🎉 ñ",
    "html": "<a href=\"x\">'q' & r</a>",
    "lines": "one\n  two\n\nthree\n",
    "xs": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "d": {"b": 2, "a": 1, "C": 3},
    "mixed": [1, "two", None, True, 3.5, [1, 2], {"k": "v"}],
    "users": [
        {"name": "Zoe", "age": 30, "city": {"zip": "10"}, "on": True},
        {"name": "adam", "age": 25, "city": {"zip": "20"}, "on": False},
        {"name": "Bob", "age": 30, "city": {"zip": "10"}, "on": True},
    ],
    "nested": {"a": {"b": [10, {"c": "deep"}]}},
    "tree": [{"v": 1, "sub": [{"v": 2, "sub": []}, {"v": 3, "sub": [{"v": 4, "sub": []}]}]}],
    "items_key": {"items": [1, 2], "keys": "k"},
}

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
-n
+n
- -n
7 / 2
8 / 2
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
-7.5 % 2
7.5 % -2
0.0 * -1
1 / 3
1e16
1e15
123456789012345680.0
1e22
1e-4
1e-5
0.1 + 0.2
1.0
100000000000000000.0
3.14e-10
True + 1
true
True
false
none
None
nothing
undefined_thing
t and n
t and empty
empty or 'x'
empty or nothing
not t
not not n
not n == 7
n == 7 and f == 2.5 or false
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'a' == 'a'
'a' < 'b'
'B' < 'a'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
none == none
none == false
undefined_thing == undefined_thing
undefined_thing == none
1 in xs
9 in xs
9 not in xs
'ell' in s
'xyz' not in s
'a' in d
'z' in d
1 in (1, 2)
not 1 in xs
2 in range(3)
n if t else 'no'
n if not t else 'no'
'yes' if empty
'a' if empty else 'b' if t else 'c'
'a' ~ 1 ~ none ~ true ~ 1.5
'a' 'b' "c"
'x' * 3
3 * 'ab'
'x' * 0
'x' * -1
[1] * 2
[1] + [2, 3]
(1,) + (2,)
()
(1)
(1,)
1, 2, 3
[]
{}
[1, 'a', none, true, 1.5, [], {}]
{'a': 1, 'b': [1, 2], 3: none, 1.5: 'f', none: 1, true: 2}
{'a': 1, 'a': 2}
{1: 'a', true: 'b', 1.0: 'c'}
['it\'s', "say \"hi\"", "both ' and \"", 'tab\there', 'nl\n', 'é', '\x00\x7f\u200b', '🎉', '\\']
xs[0]
xs[-1]
xs[5]
xs[-5]
xs[1:]
xs[:1]
xs[::-1]
xs[::2]
xs[-2:]
xs[5:]
xs[:-1]
xs[2:0:-1]
xs[10:-10:-2]
s[0]
s[-1]
s[1:4]
s[::-1]
s[::3]
s[:100]
s[-3:]
s[4:2]
uni[1]
uni[7:10]
uni[::-1]
uni[-3:]
(1, 2, 3)[1:]
range(3)[1]
range(3)[-1]
range(0)|list
range(2, 10, 3)|list
d.a
d['a']
d['zz']
d.zz
d.zz.y
d['zz']['y']
d.get('a')
d.get('zz')
d.get('zz', 'def')
d.keys()
d.values()
d.items()
d.items()|list
d.keys()|list
nested.a.b[1].c
nested['a']['b'][0]
nested.a.b.0
nested.a.b.1.c
mixed
mixed[6].k
users[0].name
users[0]['city'].zip
nothing.x
nothing['x']
nothing.x.y
undefined_thing.x
undefined_thing['x']
undefined_thing()
undefined_thing + 1
1 + undefined_thing
undefined_thing ~ 'x'
undefined_thing < 1
1 < undefined_thing
-undefined_thing
undefined_thing[0:1]
undefined_thing in [1]
1 in undefined_thing
'x' in undefined_thing
undefined_thing or 'dflt'
not undefined_thing
items_key.items
items_key['items']
items_key.keys == 'k'
s.upper()
s.lower()
s.title()
s.capitalize()
uni.upper()
uni.lower()
'straße'.upper()
'ÀÉÎ ΑΣ ΑΣΑ ΟΔΟΣ'.lower()
'ﬁne ŉ ǆ'.upper()
'ﬁne ǆungla ǆ'.title()
'ﬁne'.capitalize()
'they\'re bill\'s UPPER lower-case'.title()
'  pad '.strip()
'  pad '.lstrip() ~ '|'
'  pad '.rstrip() ~ '|'
'xxpadyx'.strip('xy')
'xxpadyx'.lstrip('x')
'xxpadyx'.rstrip('xy')
'\u3000 wide \u00a0\n'.strip()
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'a,b,,c'.split(sep=',', maxsplit=2)
'  a  b c '.split()
'  a  b c '.split(none, 1)
'  a  b c '.rsplit(none, 1)
'  a  b c '.rsplit(maxsplit=2)
''.split()
''.split(',')
'abc'.split('')
'</think>x</think>y'.split('</think>')[-1]
'a\nb\r\nc\x0bd\u2028e'.splitlines()
'a\nb\n'.splitlines(true)
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('World', 6)
s.endswith('ld')
s.endswith(('ld', 'x'))
s.startswith(1)
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.index('W')
s.index('zz')
uni.find('世')
s.count('l')
s.count('l', 3)
s.count('')
'aaa'.count('aa')
', '.join(['a', 'b'])
', '.join('abc')
', '.join([1])
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'1.2'.isdigit()
' \t'.isspace()
'ab'.islower()
'AB'.isupper()
'prefix-x'.removeprefix('prefix-')
'x-suffix'.removesuffix('-suffix')
'{} and {}'.format(1, 'b')
'{1} {0} {1}'.format('a', 'b')
'{x} {y}'.format(x=1, y=none)
'{} {}'.format(1)
'{'.format(1)
'%s is %d years, %.1f%%' % ('Bob', 30, 99.5)
'%(a)s and %(b)d' % d
'%s' % 'x'
'%s' % [1, 2]
'%r %s' % ('q', none)
'%d' % 'x'
'%s %s' % ('a',)
'%s' % ('a', 'b')
xs.index(99)
xs.append(4)
xs.append
xs.sort()
d.pop('a')
d.update({})
xs.foo
xs.foo()
s.foo
s.__class__
n.foo
'abc'.format
1 + 'a'
'a' + 1
'a' + none
'a' - 'b'
[1] + (2,)
[1] + 'a'
{} + {}
none + 1
1 // 0
1 % 0
1 / 0
1.0 / 0
0 ** -1
'a' * 'b'
'a' < 1
none < 1
[1] < ['a']
1 in 5
1 in 'abc'
[1] in d
d[[1]]
{[1]: 2}
n()
'a'()
none()
-'a'
+'a'
n[0]
n[0:1]
d[0:1]
xs['a']
xs[1.5]
xs['0':]
xs[::0]
nothing|length
n|length
range(200000)
range(1, 2, 0)
range('a')
raise_exception('stop: ' ~ n)
raise_exception(xs)
namespace(a=1).a
namespace(a=1).b
namespace({'a': 1}, b=2).b
namespace(_a=1)
dict(a=1, b=2)
dict([('a', 1), ('b', 2)])
dict(d, z=1)
dict(1)
strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %B %A %j %p %y %%')
strftime_now('%-d/%-m %e')
s|upper
s|lower
s|title
'foo bar-baz (qux) [a] ñandú'|title
s|capitalize
'  x '|trim
'xxaxx'|trim('x')
n|trim
nothing|trim
undefined_thing|trim
s|length
uni|length
xs|length
d|count
undefined_thing|length
xs|join
xs|join(', ')
words|join(d=', ')
users|join(', ', attribute='name')
'abc'|join('-')
d|join(',')
mixed|join('|')
xs|first
xs|last
empty|first
[]|last
s|first
s|last
d|first
d|last
range(5)|last
xs|sort
xs|sort(reverse=true)
xs|sort(true)
words|sort
words|sort(case_sensitive=true)
users|sort(attribute='age')|map(attribute='name')|join(',')
users|sort(attribute='city.zip', reverse=true)|map(attribute='name')|join(',')
mixed|sort
xs|reverse|list
s|reverse
xs|max
xs|min
words|max
words|min(case_sensitive=true)
users|max(attribute='age')
[]|max
xs|sum
users|sum(attribute='age')
xs|sum(start=10)
[0.1, 0.2]|sum
words|sum
words|unique|list
words|unique(case_sensitive=true)|list
users|unique(attribute='age')|map(attribute='name')|list
xs|list
s|list
d|list
n|list
xs|map('string')|join('+')
words|map('upper')|list
words|map('replace', 'a', '4')|list
words|map('length')|sum
users|map(attribute='city.zip')|list
users|map(attribute='missing', default='?')|list
users|map(attribute='missing')|list
users|map('nosuchfilter')|list
users|map()|list
xs|map(attribute=0)|list
xs|select('odd')|list
xs|select('divisibleby', 2)|list
xs|select('gt', 1)|list
[0, 1, '', 'a', none]|select|list
xs|reject('odd')|list
[0, 1, '', 'a', none]|reject|list
mixed|select('string')|list
mixed|select('number')|list
users|selectattr('on')|map(attribute='name')|list
users|selectattr('age', 'equalto', 30)|map(attribute='name')|list
users|selectattr('name', 'in', ['Bob', 'Zoe'])|map(attribute='name')|list
users|selectattr('missing', 'defined')|list
users|selectattr('missing')|list
users|rejectattr('on')|map(attribute='name')|list
users|rejectattr('age', 'gt', 26)|map(attribute='name')|list
users|selectattr('age', 'nosuchtest')|list
(xs|map('string'))|length
d|items|list
undefined_thing|items|list
xs|items|list
d|dictsort
d|dictsort(true)
d|dictsort(false, 'value')
d|dictsort(by='value', reverse=true)
d|dictsort(by='nope')
'3'|int
'3.9'|int
'x'|int
'x'|int(5)
3.99|int
-3.99|int
true|int
nothing|int
undefined_thing|int
xs|int
'3.5'|float
'x'|float
'x'|float(1.5)
'1e3'|float
'inf'|float
'nan'|float
7|float
7|string
3.0|string
nothing|string
true|string
xs|string
undefined_thing|string
'x'|round
-5|abs
-5.5|abs
'x'|abs
undefined_thing|abs
nothing|default('x')
nothing|default('x', true)
empty|default('x')
empty|d('x', boolean=true)
undefined_thing|default
undefined_thing|default('x')
undefined_thing|d(5)
undefined_thing.y|default('x')
d.zz|default('x')
s|replace('o', '0')
s|replace('o', '0', 1)
n|replace(7, 8)
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
n|indent
'%s-%s'|format('a', 1)
'%(x)s'|format(x=1)
'%s'|format
html|safe
('<b>'|safe) + '<i>'
'<i>' + ('<b>'|safe)
('<b>'|safe) ~ '<i>'
['<'|safe]
('<b>'|safe)|upper
('<b>'|safe)[1:]
[('<b>'|safe)|title]
'a' % undefined_thing
('<b>'|safe) == '<b>'
d|tojson
mixed|tojson
mixed|tojson(indent=2)
{}|tojson(indent=2)
[[], {}, [[]]]|tojson(indent=1)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent=4, separators=(',', ' = '))
d|tojson(indent='--')
uni|tojson
uni|tojson(ensure_ascii=true)
html|tojson
'a"b\\c\n\r\t\x08\x0c\x01\x7f/'|tojson
[1.0, 1e100, 0.1, 1e-7, -0.0]|tojson
['inf'|float, 'nan'|float]|tojson
(1, 2)|tojson
{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson
{(1, 2): 'a'}|tojson
undefined_thing|tojson
d.items()|tojson
xs|map('string')|tojson
d|tojson(true)
s|tojson|safe
n is defined
undefined_thing is defined
undefined_thing is undefined
undefined_thing is not defined
d.zz is defined
d.a is defined
nothing is none
n is none
n is not none
undefined_thing is none
s is string
n is string
n is number
f is number
t is number
s is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
d is mapping
xs is mapping
xs is iterable
s is iterable
n is iterable
undefined_thing is iterable
xs is sequence
s is sequence
d is sequence
n is sequence
d.items() is sequence
d.items() is iterable
range(3) is sequence
undefined_thing is sequence
t is true
1 is true
false is false
0 is false
n is odd
n is even
'x' is odd
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is lt 8
n is gt 8
n is le 7
n is ge 8
n is lessthan 8
n is greaterthan 8
n is in xs
3 is in xs
3 is in(xs)
3 is not in xs
'e' is in s
nothing is sameas none
t is sameas true
1 is sameas true
range is callable
s.upper is callable
s is callable
n is defined and s is string
not n is string
n is not string and n is number
n is number == true
xs|length > 2 and s|length == 11
xs|length - 1
(xs|length) * 2
-xs|first
-n|abs
n|string ~ s|length
'a' in s|lower
'%s' % n|string
s|upper|lower|title
s.split()|first|upper
s.split(' ')[1][::-1]|upper
(xs|sort)[0]
(n, s)|tojson
[x]
s|nosuchfilter
s is nosuchtest
(s|nosuchfilter) if false else 'ok'
loop
loop.index
self_missing.x
varargs
caller
caller()
dict(a=1).items()|list
'a' is eq('a')
xs is eq xs
{'a': [1, {'b': (1, 2)}]}
"it's"
'a\
b'
'\xzz'
'\u12'
'unterminated
{'a': 1
[1, 2
(1, 2
1 +
1 2
a b
foo(
foo(a=1, 2)
foo(**d, 1)
foo(*xs, *xs)
'a' | 
'a' is
n is number is string
@
a ? b
!n
n && t
n = 7
{% if %}
'ŉǰΐ ﬃ ᾲ ᾀ ǆ ẞ'|upper
'ŉx ǰx ΐx ﬃx ᾲx ᾀx ǆx ßx ᾷx'.title()
'ᾲ Ω'|capitalize
'ΟΔΥΣΣΕΥΣ ΣΑΣ'.lower()
'a,b,c,d'.rsplit(',', 2)
' a  b c '.rsplit(None, 1)
'<&>'|safe + '<' + n|string
'%-5s|%05d|%+d|%.2f|%x' % ('ab', 42, 7, 2.345, 255)
'{:>5}|{:<5}|{:^5}|{:05d}|{:+d}|{:.1f}|{i:d}'.format('ab', 'cd', 'ef', 42, 7, 2.25, i=3)
'[{}]'.format(undefined_thing)
'[{}|{}|{}]'.format(none, xs, true)
'{:5}|{:<6}|{:x}'.format(true, 2.5, -255)
'[%s]' % undefined_thing
true|abs
[nothing[1:], d[:2], 5[::2]]
nothing[1:].x
words|sort(attribute='zz')
xs|map('string')|reverse
[users[0], {'name': 'Ann'}, {}]|sort(attribute='age')|length
"""

STATEMENTS = [
    # loops
    "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in undefined_thing %}x{% else %}none{% endfor %}",
    "{% for x in nothing %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for c in 'aé🎉' %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [(1,)] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}",
    "{% for x in xs %}{{ loop.nextitem.foo }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('odd', 'even') }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in xs %}{{ loop.nosuch }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }}:{{ loop.last }} {% endfor %}",
    "{% for x in xs if x > 10 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() if v is odd %}{{ k }}{{ loop.previtem }}{% endfor %}",
    "{% for x in xs|map('string') %}{{ loop.index }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}-{{ loop.index }} {% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}none{% endfor %}",
    "{% for x in xs %}{% set y %}a{% break %}{% endset %}{{ y }}{% endfor %}|",
    "{% break %}",
    "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in xs %}{% else %}{% break %}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in range(100001) %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in (1, 2) if true else [] %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop(xs) }}{% endfor %}",
    "{% for loop in xs %}{% endfor %}",
    "{% for x in xs %}{% set loop = 1 %}{% endfor %}",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}",
    "{% for x.y in xs %}{% endfor %}",
    "{% for x in xs",
    "{% for x in xs %}",
    "{% for x in xs %}{% endif %}",
    "{% for x %}{% endfor %}",
    "{% endfor %}",
    "{% for m in users %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    # if
    "{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}",
    "{% if n == 8 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if n == 8 %}a{% elif n == 9 %}b{% else %}c{% endif %}",
    "{% if undefined_thing %}a{% endif %}b",
    "{% if undefined_thing.x %}a{% endif %}b",
    "{% if [] %}a{% elif {} %}b{% elif '' %}c{% elif 0 %}d{% elif 0.0 %}e{% elif none %}f{% else %}g{% endif %}",
    "{% if xs|map('string') %}generators are true{% endif %}",
    "{% if range(0) %}a{% else %}b{% endif %}",
    "{% if d.keys() %}a{% endif %}{% if {}.keys() %}b{% endif %}",
    "{% if false %}{{ s|nosuchfilter }}{% endif %}ok",
    "{% if false %}{{ s is nosuchtest }}{% endif %}ok",
    "{% if false %}{% set x = s|nosuchfilter %}{% endif %}ok",
    "{% if t: %}a{% endif %}",
    "{% if n %}a",
    "{% if n %}{% else %}{% else %}{% endif %}",
    "{% elif n %}",
    "{% if n = 7 %}a{% endif %}",
    # set, scoping, namespaces
    "{% set x = 5 %}{{ x }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set x %}hello {{ n }}{% endset %}[{{ x }}]{{ x is string }}",
    "{% set x | upper | replace('L', '_') %}hello{% endset %}{{ x }}",
    "{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in xs %}{% set inner = i %}{% endfor %}{{ inner is defined }}",
    "{% set ns = namespace(x=0) %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns.b is defined }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set d.x = 1 %}",
    "{% set undefined_thing.x = 1 %}",
    "{% set ns = namespace(a=[]) %}{% for x in xs %}{% set ns.a = ns.a + [x * 2] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(d={}) %}{% set ns.d = dict(ns.d, k=1) %}{{ ns.d }}",
    "{{ ns['a'] }}{% set ns = namespace(a=1) %}{{ ns['a'] }}",
    "{% set n = n + 1 %}{{ n }}",
    "{% set x = y %}{{ x is defined }}",
    "{% set true = 1 %}",
    "{% set x.y.z = 1 %}",
    "{% set x['a'] = 1 %}",
    "{% set x += 1 %}",
    "{% set x = %}",
    "{% set x %}",
    "{% set x = 1 %}{% set x = x ~ 'a' %}{{ x }}",
    "{% set x %}{% set inside = 1 %}{% endset %}{{ inside is defined }}",
    "{% for x in xs %}{{ x }}{% set x = 'changed' %}{{ x }} {% endfor %}",
    "{% set messages = xs %}{% set xs = xs[1:] %}{{ xs }}{{ messages }}",
    # names that a scope assigns are its own from the start
    "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% if true %}{% set n = 8 %}{% endif %}{{ m() }}",
    "{{ n }}{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 8 %}{{ m() }}",
    "{% for x in [1, 2] %}{% for y in [1] %}{{ n }}{% endfor %}{% set n = 8 %}{% endfor %}{{ n }}",
    "{% for x in [1, 2] %}{% if x == 2 %}{{ s }}{% endif %}{% set s = x %}{% endfor %}{{ s }}",
    "{% for x in [1] %}{% set s %}{{ s }}{% endset %}{{ s }}{% endfor %}{{ s }}",
    "{% macro n() %}macro{% endmacro %}{{ n() }}{% for x in [1] %}{{ n() }}{% endfor %}",
    "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}",
    "{% for n in xs %}{{ n }}{% endfor %}{{ n }}",
    "{% for x in [1] %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}",
    # with
    "{% with %}{% set y = 1 %}{{ y }}{% endwith %}{{ y is defined }}",
    "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}",
    "{% with a=1, b=a %}{{ b is defined }}{% endwith %}",
    "{% set a = 5 %}{% with a=1 %}{{ a }}{% endwith %}{{ a }}",
    # macros
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=0) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * fact(k - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% macro m() %}  padded  {% endmacro %}[{{ m()|trim }}]{{ m() is string }}",
    "{% macro m(a, b) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m %}{% endmacro %}",
    "{% macro m() %}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}{{ m(*[], **{}) }}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(**5) }}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(*5) }}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ xs|map('string')|list }}{% for x in xs %}{{ m(x) }}{% endfor %}",
    "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro outer() %}{% macro inner(x) %}({{ x }}){% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}",
    "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    # call
    "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}body {{ n }}{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) each(xs) %}<{{ v }}>{% endcall %}",
    "{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller('<a>') }}{% endmacro %}{% call(x) m() %}{{ x|upper }}{% endcall %}",
    # filter blocks, generation, print
    "{% filter upper %}abc {{ n }}{% endfilter %}",
    "{% filter replace('a', 'b')|trim|upper %} aaa {% endfilter %}!",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% filter nosuchfilter %}a{% endfilter %}",
    "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}",
    "a{% generation %}b{{ n }}{% endgeneration %}c",
    "{% for x in xs %}{% generation %}{{ x }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}{% endfor %}",
    "{% nosuchtag %}",
    "{% %}",
    "{% 5 %}",
    "{{ }}",
    "{{ n",
    "{{ n }",
    "{{ n %}",
    "{% if n }}",
    "{{ (n }}",
    "{{ n) }}",
    "{{ [n) }}",
    "{# comment",
    "{% raw %}x",
    "{#",
    "{% raw %}",
    # whitespace control
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if t %}\n  b\n  {%- endif %}\nc",
    "a\n  {% if t -%}\n  b\n  {% endif -%}\nc",
    "a\n  {%+ if t %}\n  b\n  {%+ endif %}\nc",
    "a\n  {% if t +%}\n  b\n  {% endif +%}\nc",
    "  {{ n }}\n  {{- n }}\n  {{ n -}}\n  x",
    "x {{+ n }} y",
    "a {#- comment -#} b",
    "a\n  {# comment #}\nb",
    "a\n  {#+ comment +#}\nb",
    "a {# multi\nline #} b",
    "{% if t %}\n\nx\n\n{% endif %}\n\ny",
    "{% if t %}\r\nx\r\n{% endif %}\r\ny\r",
    "\n\n{{ n }}\n\n",
    "x\n",
    "x\n\n",
    "\t{% if t %}a{% endif %}\t{% if t %}b{% endif %}",
    "a{% if t %}\n{% endif %}b",
    "{{ n }}{% if t %}\n  {{ n }}\n{% endif %}",
    "  {% set x = 1 %}  \n  {{ x }}",
    "{% set x = 1 -%}\n\n\n   y",
    "{{ '  a ' -}}   {{- '  b ' }}",
    "\u3000{%- if t %}x{% endif -%}\u3000y",
    "{% raw %}{{ n }} {% if %}{% endraw %}",
    "{% raw -%}  {{ n }}  {%- endraw %}|",
    "  {% raw %}\n a\n  {% endraw %}\nb",
    "{%raw%}{{{%endraw%}",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}",
    "{{ {'a': {'b': 1}} }}",
    "{{{'a': 1}}}",
    "{{ {'a': 1}['a'] }}",
    "{ {n} } {x} {%if t%}y{%endif%}",
    "a { b } c {",
    "{{-n-}}{{+n}}",
    "{{ 5-1 }}{{ 5 -1 }}",
    "{{n}}{{ n}}{{n }}",
    "text only é 世界",
    "",
    # things chat templates do
    "{% set content = '<think>why</think>answer' %}{{ content.split('</think>')[-1].lstrip('\\n') }}|{{ content.split('</think>')[0].split('<think>')[-1] }}",
    "{%- for i in range(xs|length - 1, -1, -1) %}{{ xs[i] }}{%- endfor %}",
    "{%- for x in xs[::-1] %}{% set index = (xs|length - 1) - loop.index0 %}{{ index }}{%- endfor %}",
    "{{ 'a' if xs and xs[0] == 3 else 'b' }}",
    "{{ users | selectattr('on', 'equalto', true) | list | length }}",
    "{{ (users | map(attribute='name') | list)[-1] }}",
    "{{ 'tools' in d or d.get('tools') is not none }}",
    "{% if xs is iterable and xs is not string and xs is not mapping %}list{% endif %}",
    "{{ users[0] | tojson(indent=4) }}",
    "{{ users[0] | tojson | safe }}",
    "{{ '\\n'.join(words) if words is not string else words }}",
    "{{ raise_exception('Roles must alternate') if n != 8 }}",
    "{{ raise_exception('line 1\\nline 2') }}",
    "{{ xs|join(', ') ~ (' and ' ~ n if n else '') }}",
    "{{ none ~ 1 }}{{ 1.0 ~ '' }}{{ 1e100 }}{{ 12345678.9 }}{{ 1/3*3 }}",
    "{% set g = xs|map('string') %}{{ g|join }}{{ g|join }}|",
    "{% set g = xs|select %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}",
    "{{ '%02d:%02d' % (3, 7) }}",
    "{{ d.items()|map('first')|list }}{{ d.items()|list|last|last }}",
    "{% for x in xs %}{{ x }}{{ ', ' if not loop.last }}{% endfor %}",
]
