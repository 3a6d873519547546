package simulate
import ("testing";"time";"fmt")
func BenchmarkMessagesX(b *testing.B) {
	for _, proto := range []string{"smpp","http"} { b.Run(proto, func(b *testing.B){
	p := parse(b, "[class.a]\nrate = \"400 messages/s\"\n"+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = \"discard:\"\nclass = \"a\"\n", proto))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Run(p, loads(b, p, "rate=200 messages/s,pattern=poisson", "rate=200 messages/s,pattern=poisson"), Options{For: 1250 * time.Second})
		if err != nil { b.Fatal(err) }
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(r.Classes[0].Offered.Items)/float64(b.N), "ns/message")
	}})}
}
