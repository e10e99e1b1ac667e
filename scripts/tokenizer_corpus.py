"""Hard text for tokenizers: what trips split patterns, normalizers, byte fallback and UTF-8 handling.

corpus() is a list of bytes; some entries are not valid UTF-8. It is deterministic.
"""
import random

SENTENCES = [
    "", " ", "a", "  ", "\n", "\t", "Hello, world!", "Hello world", " Hello", "Hello ", "  Hello  ",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
    "It's I'm you're we've they'll he'd don't IT'S I'M YOU'RE WE'VE THEY'LL HE'D DON'T It'S 'sx 'S' ''s '' 'lL 'Ve 'rE",
    "it\u2019s I\u2019m you\u2019re 'tis 'twas o'clock rock'n'roll 'ſ 'ſx d\u2019Artagnan l'été qu'il",
    "1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890 12345678901 123456789012",
    "3.14159 -2.718e-10 0xDEADBEEF 1,234,567.89 $9.99 50% ½ ² ³ ⁴ Ⅻ ① ٣٤٥ १२३ 〇一二三 ௧௨ 𝟘𝟙𝟚 v1.2.3 10:30 2024-02-29T23:59:59Z x1y2z3",
    # white space of all kinds
    "a b  c   d    e     f      g", "tab\tone\t\ttwo\t\t\tthree", "line\nline\n\nline\n\n\nline\r\nline\r\n\r\nline\r\rline\n\r",
    "trailing spaces   ", "trailing newline\n", "trailing mix \t\n \n", "   leading", "\n\n   indented\n\tmore\n        eight",
    "nbsp\u00a0here\u00a0\u00a0two ideographic\u3000space\u3000\u3000 en\u2002em\u2003thin\u2009hair\u200anarrow\u202fmath\u205fogham\u1680",
    "line sep\u2028para sep\u2029nel\u0085vt\u000bff\u000c zero\u200bwidth\u200cjoin\u200dbom\ufeff mongolian\u180evowel word\u2060joiner",
    " \u00a0 \u3000 \n \u00a0\n\u3000\r\n \t x", "x \u00a0", "x\u00a0 y", "   \u3000", "\u00a0\u00a0\u00a0z", " \n \n \n", "\r\n\r\n\r\n", " .", "  .", "\n.", " \n.",
    # control characters
    "".join(chr(c) for c in range(1, 32)), "nul\u0000inside\u0000\u0000", "\u007f\u0080\u0081\u008f\u009f\u00ad", "\x1b[31mred\x1b[0m",
    # scripts
    "Größe Straße ÄÖÜ äöü ß ẞ naïve café résumé Ångström İstanbul ıI ŒŒ œ Æ ĳ Ǆ ǅ ǆ ﬁ ﬂ ﬃ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. ЁЖИК ёжик",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΌΣΟΣ όσος ἀρχῇ ἦν ὁ λόγος ᾳ ῼ",
    "שלום עולם שָׁלוֹם ‏בְּרֵאשִׁית", "مرحبا بالعالم السَّلَامُ عَلَيْكُمْ ٱلرَّحِيمِ ۝ لا إله ﷽ ﷲ",
    "नमस्ते दुनिया क्षत्रिय श्रीमान् हिन्दी में लिखा हुआ वाक्य। ज़िन्दगी ड़ ढ़ १२३",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่างระหว่างคำ กำลังน้ำใจ ๑๒๓", "ສະບາຍດີ ວຽງຈັນ", "မြန်မာဘာသာ ကျေးဇူးတင်ပါတယ်", "ភាសាខ្មែរ កម្ពុជា",
    "안녕하세요 세계 한국어 띄어쓰기 없이", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165 \u1100\u1161 ㅋㅋㅋ ㅎㅎ ﾡﾢ",
    "你好，世界！这是一个测试。中文没有空格。漢字かな交じり文", "こんにちは世界。カタカナ ｶﾀｶﾅ ｶﾞｷﾞ ひらがな、漢字！ヴァイオリン がぎぐ",
    "が が\u3099 は\u309a か\u3099き\u3099", "𠀀𠀁𠮷野家 𪚥 𫝀 𬺰 𮯠 \U00031350 \U0002ebf0", "ગુજરાતી ਪੰਜਾਬੀ বাংলা ଓଡ଼ିଆ தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ქართული ᲥᲐᲠᲗᲣᲚᲘ Հայերեն አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ᠮᠣᠩᠭᠣᠯ བོད་སྐད་ ꦧꦱꦗꦮ ⴰⵎⴰⵣⵉⵖ", "Tiếng Việt có dấu: ệ ữ ằ ẵ ộ ỹ Đ đ", "ǅ ᾈ ᾳ ʰ ˠ ª º ː ʻokina Hawaiʻi",
    # combining marks and normal forms
    "e\u0301 \u00e9 E\u0301cole n\u0303 a\u030a\u0301 \u01fb o\u0328\u0304 \u01ed q\u0307\u0323 q\u0323\u0307 \u1e69 s\u0323\u0307 \u212b \u2126 \u00c5 \u0344",
    "\u0301lone \u0301 mark a\u0301\u0302\u0303\u0304\u0305b Z\u0351\u036b\u0343a\u0352\u0308l\u0312\u0351g\u030ao\u0302", "\u0915\u093c \u0958 \u09af\u09bc \u0b21\u0b3c \u2adc \ufb1d \u1100\u1161\u11a8 \uac01 \ufefb",
    "A\u0301B\u0301c\u0301 \u0301A \u0301a a\u0301A \u0903A \u0903a UPPERlower lowerUPPER CamelCaseXMLHttp iOS macOS eBay ÉCOLEécole ǅabc ʰA Aʰ 中A A中 aא אa Aא",
    # emoji
    "😀😃😄 👍🏽 👩‍👩‍👧‍👦 👨🏿‍🚀 🏳️‍🌈 🏴‍☠️ 🇩🇪🇫🇷🇯🇵 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ ❤ ☺️ 1️⃣ #️⃣ ©️ ™ 🫠🫨🪿 👁️‍🗨️", "a😀b 😀 😀  x😀😀 🧑‍💻code",
    "© ® ™ € £ ¥ ₹ ₿ ¢ § ¶ † ‡ • … ‰ ′ ″ ‹ › « » „ “ ” ‘ ’ ‚ – — ― − × ÷ ± ≠ ≤ ≥ ∞ ∑ ∏ √ ∂ ∫ ≈ → ← ↑ ↓ ⇒ ∀ ∃ ∈ ∅ □ ■ ▁ ▁▁ _▁_ ▂ ░",
    "\ue000 \uf8ff \U000f0000 \U0010fffd \ufdd0 \uffff \U0001ffff \u0378 \U00010d4a \ua7ce \U0001fae9",
    # code
    "def f(x):\n    if x < 0:\n        return -x\n    return x ** 2  # square\n\n\nclass A(B):\n\tpass\n",
    "#include <stdio.h>\nint main(void) {\n  printf(\"%d\\n\", 42); /* ok */\n  return 0;\n}\n", "const f = async (x) => { await g(`${x}`); return x?.y ?? null; };\n// done\n",
    "SELECT * FROM t WHERE a='x''y' AND b IN (1,2,3); -- comment", "fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![0; 10]; Ok(()) }",
    "<html><body class=\"a b\">&nbsp;&amp;</body></html>\n<!-- c -->", "{\"k\": [1, 2.5e3, null, true], \"s\": \"\\u00e9\\n\"}", "$$\\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2}$$",
    "https://www.example.com/a/b-c_d?e=f&g=%20#h user.name+tag@mail.example.org C:\\Program Files\\x\\y.txt /usr/local/bin/ ../../x ./y //z // / \\ ///\n/\n", "a/b\n/c\r\n/d/\n\n//",
    "!!!??? ... --- === *** ### @@@ ~~~ ``` ;;; ::: ((())) [[[]]] {{{}}} <<<>>> |||&&& ^^^ %%% $$$ +++ \"\"\" ''' ,,,", "-----BEGIN KEY-----\n", "==========\n\n", "!?\n\n \n?", " !\n", "  !\r\n", "#\n#", "_a_ __init__ a_b_c _1_",
    "| a | b |\n|---|---|\n| 1 | 2 |\n", "* item\n  * sub\n    - deep\n1. one\n2. two\n", "a=1;b=2;c=a+b", "x+=1 y-=2 z*=3 i++ --j !k ~l a<<2 b>>3 c&d e|f g^h",
    # special-token look-alikes
    "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|", "<|im_start|>|>", "< |im_end|>", "<|im_end|><|im_end|>", "x<|endoftext|>y", " <|endoftext|> ", "<s>", "</s>", "<s> a</s>b", "[INST] hi [/INST]", "<unk>", "a <unk> b",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<0x0A>", "<0x41><0x42>", "<pad><bos><eos>", "<start_of_turn>user\nHi<end_of_turn>\n", "<|reserved_special_token_0|>", "[TOOL_CALLS]x[ARGS]{}", "<SPECIAL_20>",
    "one two\n\n\n\nthree    four     five<tag>six</tag>", "before<mask>after", "before <mask> after", "a<mask>", "  <mask>  \n x", "wordonly word only wordonly! (wordonly) xwordonly wordonlyx wordonly_", "MiXeD Added ADDED added İadded", "left  <L>  right", "left  <R>  right", "a<L><R>b <R> <L> c", "<LR>  <LR>", "   <L>", "<R>   ",
    # Chinese and code glued together, mixed directions
    "使用Python3编写的code，version2.0版本", "abcאבג123", "русскийenglish中文한국어ไทย", "A1b2C3d4", "１２３ＡＢＣ ａｂｃ ﹏ ︰",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat.",
    "O senhor não viu? ¿Qué pasó, señor? ¡Olé! L’œuvre à côté où. Zażółć gęślą jaźń. Příliš žluťoučký kůň. Árvíztűrő tükörfúrógép. Þetta er íslenska. Fjølner på øya.",
]

BROKEN = [
    b"\xff", b"\x80", b"\xc3", b"\xc3(", b"a\xc3", b"\xe2\x82", b"\xe2\x82x", b"\xe2(\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98 x", b"\xf0\x9f", b"\xf0",
    b"\xed\xa0\x80", b"\xed\xb0\x80x", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe\xfe\xff\xff",
    b"ok \xe4\xbd\xa0\xe5\xa5 broken", b"\xf0\x9f\x98\x80\xf0\x9f\x98", b"\xe4\xbd\xe4\xbd\xa0", b"mixed \xff\xfe text \xc3\xa9 \xc3", b"\x80\x80\x80", b"\xf1\x80\x80\xc2 \xc2\xa9",
]


def random_texts(count, seed):
    """Short random strings over characters that matter to split patterns."""
    rng = random.Random(seed)
    pool = list("aAbBsStTdDmMlLrRvVeE'''  \n\n\r\t.,!?-_/\\<>|0123456789éÉßſǅʰªªמ中文かカ가ไम\u093f\u0301\u0302\u0308\u00a0\u3000\u2028\u200d😀👍🏽²Ⅳ٣½€≈▁\u0000\u0085\u180e\u200b")
    out = []
    for _ in range(count):
        n = rng.randrange(1, 40)
        out.append("".join(rng.choice(pool) for _ in range(n)))
    return out


def long_texts():
    return ["a" * 3000, "ab" * 1500, "x" * 999 + " " + "y" * 999, " " * 2000, "\n" * 700, " \n" * 500, "Supercalifragilistic" * 100,
            "你好" * 500, "क्ष" * 300, "é" * 1000, "0123456789" * 100, "!" * 1000, "'" * 500, "e\u0301" * 400, "😀" * 300, "\u0301" * 500,
            "word " * 300, "<|im_start|" * 100, "</" * 500, "A" * 500 + "a" * 500, ("A" * 3 + "a" * 2) * 150]


def corpus():
    texts = [s.encode() for s in SENTENCES]
    texts += BROKEN
    texts += [s.encode() for s in random_texts(150, 7)]
    texts += [s.encode() for s in long_texts()]
    return texts
