package bench_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A corpus makes request bodies of one character at any size. The bodies look like what API clients send: members in
// the order of the client's struct, optional members missing at random, numbers of several shapes. Members of objects
// built from a map (metadata) arrive sorted, because most JSON libraries sort maps.
type corpus struct {
	name  string
	style style
	body  func(g *gen, size int) object
}

var corpora = []corpus{
	{"flat", style{}, flatBody},
	{"nested", style{indent: true}, nestedBody},
	{"escapes", style{spaced: true, ascii: true}, escapesBody},
	{"unicode", style{}, unicodeBody},
}

var sizes = []struct {
	name  string
	bytes int
}{{"200B", 200}, {"2KB", 2 << 10}, {"64KB", 64 << 10}}

// make returns the body of the corpus whose length is nearest to size. It is the same on every run.
func (c corpus) make(size int) []byte {
	var best string
	for n := 0; n <= size; n++ {
		text := c.style.render(c.body(&gen{rand.New(rand.NewPCG(1, 2))}, n))
		if best == "" || abs(len(text)-size) < abs(len(best)-size) {
			best = text
		}
		if len(text) > size+size/8 {
			break
		}
	}
	return []byte(best)
}

// An object keeps its members in the order given. Values are object, []any, string, number, bool or nil.
type (
	object []member
	member struct {
		name  string
		value any
	}
	number string
)

// gen draws values; its methods name what is drawn.
type gen struct{ *rand.Rand }

func (g *gen) pick(from []string) string { return from[g.IntN(len(from))] }
func (g *gen) chance(percent int) bool   { return g.IntN(100) < percent }

func (g *gen) words(from []string, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = g.pick(from)
	}
	return strings.Join(parts, " ")
}

func (g *gen) id(prefix string, n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := []byte(prefix)
	for range n {
		b = append(b, alphabet[g.IntN(len(alphabet))])
	}
	return string(b)
}

func (g *gen) uuid() string {
	a, b := g.Uint64(), g.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&(1<<48-1))
}

func (g *gen) time() string {
	return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02dZ", 1+g.IntN(12), 1+g.IntN(28), g.IntN(24), g.IntN(60), g.IntN(60))
}

func (g *gen) cents() number  { return number(strconv.Itoa(50 + g.IntN(250000))) }
func (g *gen) count() number  { return number(strconv.Itoa(1 + g.IntN(12))) }
func (g *gen) millis() number { return number(strconv.Itoa(1_760_000_000_000 + g.IntN(1_000_000_000))) }

func (g *gen) decimal() number {
	return number(strconv.FormatFloat(float64(g.IntN(10_000_000))/100, 'f', 2, 64)) // often ends in a zero, as 12.50 does
}

func (g *gen) coordinate() number {
	return number(strconv.FormatFloat(g.Float64()*360-180, 'f', 6, 64))
}

func (g *gen) rate() number {
	return number([]string{"0.19", "0.07", "0", "1.0", "2.5e-3", "1E+2", "-0.5", "0.055"}[g.IntN(8)])
}

// some drops each member that is not required with one chance in four.
func (g *gen) some(required int, o object) object {
	kept := o[:required:required]
	for _, m := range o[required:] {
		if !g.chance(25) {
			kept = append(kept, m)
		}
	}
	return kept
}

var (
	english = strings.Fields(`invoice monthly subscription for the premium plan with extended support and priority
		delivery order of two blue cotton shirts size large please leave the parcel at the front desk thank you`)
	cities     = strings.Fields("Berlin Hamburg Vienna Zurich Amsterdam Lisbon Warsaw Dublin")
	currencies = strings.Fields("EUR USD GBP CHF JPY")
	chinese    = strings.Fields("订单 请在 周末 之前 送到 前台 谢谢 客户 地址 蓝色 棉质 衬衫 两件 发票 付款 成功 退款 说明")
	russian    = strings.Fields("заказ доставка оплата клиент адрес спасибо пожалуйста оставьте посылку на входе счёт")
	german     = strings.Fields("Rechnung für größere Bestellung über zwölf Stück bitte an die Tür geben schöne Grüße aus Köln")
	japanese   = strings.Fields("ご注文 ありがとうございます 配送先 東京都 渋谷区 お届け 日時 指定 なし")
	emoji      = strings.Fields("🎉 🚚 ✅ 👍🏽 🇩🇪 📦")
	markup     = []string{"<b>bold</b>", `"quoted"`, `C:\temp\file`, "it's", "R&D", "a/b", "https://example.com/a?b=1&c=2", "tab\there", "<br/>"}
)

// The flat corpus: one level, compact, ASCII. A large body is a batch of payments.
func flatBody(g *gen, n int) object {
	payment := func() object {
		return g.some(3, object{
			{"id", g.id("pay_", 16)},
			{"amount", g.cents()},
			{"currency", g.pick(currencies)},
			{"customer", g.id("cus_", 14)},
			{"description", g.words(english, 3+g.IntN(8))},
			{"capture", g.chance(80)},
			{"customer_email", strings.ToLower(g.id("", 8)) + "@example.com"},
			{"created_at", g.time()},
			{"tax_rate", g.rate()},
			{"total", g.decimal()},
			{"statement_descriptor", g.words(english, 2)},
			{"statement_suffix", nil},
			{"sequence", g.millis()},
			{"idempotency_hint", g.uuid()},
			{"method", g.pick([]string{"card", "sepa_debit", "paypal"})},
			{"attempts", g.count()},
			{"test", false},
		})
	}
	if n <= 10 {
		return payment()[:min(n+1, 8)]
	}
	if n <= 100 { // one wide record, such as a form
		var o object
		for i := range n {
			p := payment()
			m := p[g.IntN(len(p))]
			m.name = fmt.Sprintf("%s_%s%d", g.pick(english), m.name, i)
			o = append(o, m)
		}
		return o
	}
	var batch []any
	for range n - 95 {
		batch = append(batch, payment())
	}
	return object{{"mode", "async"}, {"batch", batch}, {"count", number(strconv.Itoa(len(batch)))}}
}

// The nested corpus: an order with addresses, lines and metadata, indented by two spaces.
func nestedBody(g *gen, n int) object {
	address := func() object {
		return g.some(2, object{
			{"street", g.words(english, 2) + " " + string(g.count())},
			{"city", g.pick(cities)},
			{"zip", number(strconv.Itoa(10000 + g.IntN(89999)))},
			{"country", "DE"},
			{"location", object{{"lng", g.coordinate()}, {"lat", g.coordinate()}}},
			{"residential", g.chance(50)},
		})
	}
	line := func() object {
		return g.some(3, object{
			{"sku", g.id("SKU-", 8)},
			{"quantity", g.count()},
			{"price", object{{"value", g.decimal()}, {"currency", g.pick(currencies)}, {"tax", g.rate()}}},
			{"name", g.words(english, 2+g.IntN(4))},
			{"options", []any{g.pick(english), g.pick(english), object{{"size", "L"}, {"color", "blue"}}}},
			{"weight", object{{"unit", "g"}, {"value", g.cents()}}},
			{"gift", nil},
			{"attributes", object{{"batch", g.uuid()}, {"origin", object{{"plant", g.count()}, {"line", g.pick(cities)}}}}},
		})
	}
	if n == 0 {
		return object{
			{"order", object{{"id", g.id("ord_", 8)}, {"amount", object{{"value", g.decimal()}, {"currency", "EUR"}}}}},
			{"lines", []any{object{{"sku", "A-1"}, {"quantity", g.count()}}}},
		}
	}
	order := func(lines int) object {
		var items []any
		for range lines {
			items = append(items, line())
		}
		return object{
			{"reference", g.id("ord_", 12)},
			{"customer", object{
				{"id", g.id("cus_", 14)},
				{"email", strings.ToLower(g.id("", 8)) + "@example.com"},
				{"shipping_address", address()},
				{"billing_address", address()},
			}},
			{"lines", items},
			{"metadata", object{{"campaign", g.pick(english)}, {"channel", "web"}, {"trace", object{{"id", g.uuid()}, {"ts", g.millis()}}}}},
			{"created_at", g.time()},
		}
	}
	if n <= 12 {
		return order(n)
	}
	var orders []any
	for range n - 11 {
		orders = append(orders, order(1+g.IntN(6)))
	}
	return object{{"orders", orders}, {"dry_run", false}}
}

// The escapes corpus: what Python's json.dumps sends by default, a blank after every comma and colon and \u for
// everything outside ASCII, with markup and paths in the text and slashes escaped as PHP does.
func escapesBody(g *gen, n int) object {
	text := func(n int) string {
		var parts []string
		for range n {
			parts = append(parts, g.pick([][]string{english, german, markup, chinese, russian, markup, emoji}[g.IntN(7)]))
		}
		sep := " "
		if g.chance(30) {
			sep = "\n"
		}
		return strings.Join(parts, sep)
	}
	note := func() object {
		return g.some(2, object{
			{"title", text(4)},
			{"body", text(4 + g.IntN(12))},
			{"author", object{{"name", g.words(german, 2)}, {"id", g.count()}}},
			{"url", "https://example.com/" + g.pick(english) + "/" + g.pick(chinese)},
			{"path", `C:\data\` + g.pick(english) + `\` + g.pick(german)},
			{"größe", g.decimal()},
			{"html", "<p class=\"x\">" + g.words(english, 3) + "</p>\r\n"},
			{"price", g.decimal()},
			{"draft", g.chance(50)},
		})
	}
	if n <= 2 {
		return note()[:n+1]
	}
	var notes []any
	for range n - 2 {
		notes = append(notes, note())
	}
	return object{{"source", "import"}, {"notes", notes}, {"at", g.time()}}
}

// The unicode corpus: raw UTF-8 text of two, three and four bytes a character, compact, with some names outside ASCII.
func unicodeBody(g *gen, n int) object {
	text := func(n int) string {
		lang := [][]string{chinese, russian, german, japanese}[g.IntN(4)]
		if s := g.words(lang, n); !g.chance(20) {
			return s
		} else {
			return s + " " + g.pick(emoji)
		}
	}
	review := func() object {
		return g.some(2, object{
			{"title", text(2)},
			{"body", text(3 + g.IntN(12))},
			{"rating", g.count()},
			{"author", object{{"name", text(2)}, {"city", g.pick(cities)}, {"id", g.id("usr_", 10)}}},
			{"größe", g.pick([]string{"S", "M", "L"})},
			{"价格", g.decimal()},
			{"tags", []any{g.pick(chinese), g.pick(russian), g.pick(english)}},
			{"created_at", g.time()},
			{"verified", g.chance(50)},
		})
	}
	if n <= 6 {
		r := review()
		return r[:min(n+1, len(r))]
	}
	var reviews []any
	for range n - 6 {
		reviews = append(reviews, review())
	}
	return object{{"shop", text(2)}, {"reviews", reviews}, {"at", g.time()}}
}

// A style is the way a client writes JSON.
type style struct {
	indent bool // newline and two spaces per level
	spaced bool // a blank after every comma and colon
	ascii  bool // \u escapes outside ASCII, escaped slashes
}

func (s style) render(v any) string {
	var b strings.Builder
	s.write(&b, v, "\n")
	return b.String()
}

func (s style) write(b *strings.Builder, v any, newline string) {
	list := func(open, end string, n int, each func(i int, newline string)) {
		inner := newline + "  "
		b.WriteString(open)
		for i := range n {
			if i > 0 {
				b.WriteString(",")
				if s.spaced {
					b.WriteString(" ")
				}
			}
			if s.indent {
				b.WriteString(inner)
			}
			each(i, inner)
		}
		if s.indent && n > 0 {
			b.WriteString(newline)
		}
		b.WriteString(end)
	}
	switch v := v.(type) {
	case object:
		list("{", "}", len(v), func(i int, newline string) {
			s.quote(b, v[i].name)
			b.WriteString(":")
			if s.indent || s.spaced {
				b.WriteString(" ")
			}
			s.write(b, v[i].value, newline)
		})
	case []any:
		list("[", "]", len(v), func(i int, newline string) { s.write(b, v[i], newline) })
	case string:
		s.quote(b, v)
	case number:
		b.WriteString(string(v))
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}

func (s style) quote(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\' || r == '/' && s.ascii:
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case s.ascii && r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		case s.ascii && r > 0x7e:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func abs(n int) int { return max(n, -n) }
