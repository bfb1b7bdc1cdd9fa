package s2codec_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// item is what a shop might keep: some of it compresses well (names of fields, words), some not.
type item struct {
	ID       int64
	SKU      string
	Name     string
	About    string
	Cents    int
	Tags     []string
	Updated  time.Time
	InStock  bool
	WeightKG float64
}

var words = strings.Fields(`lamp oak table steel chair green blue light dark small large modern classic kitchen office garden
	outdoor wood metal glass plastic sale new used warranty delivery weight height width colour material cotton leather pair
	single double round square folding electric manual battery cable adapter screen stand holder cover case shelf drawer`)

// items are so many that they take about n bytes.
func items(n int) (list []item) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		s := make([]string, n)
		for i := range s {
			s[i] = words[r.IntN(len(words))]
		}
		return strings.Join(s, " ")
	}
	for {
		list = append(list, item{r.Int64N(1 << 40), fmt.Sprintf("%08X", r.Uint32()), text(3), text(8 + r.IntN(20)), r.IntN(100_000),
			strings.Fields(text(3)), time.Unix(1_700_000_000+r.Int64N(1<<24), r.Int64N(1e9)), r.IntN(2) == 0, 10 * r.Float64()})
		if data, _ := stampede.Msgpack.Marshal(list); len(data) >= n {
			return list
		}
	}
}

func BenchmarkCodec(b *testing.B) {
	for _, kib := range []int{1, 10, 100} {
		list := items(kib << 10)
		raw, _ := stampede.Msgpack.Marshal(list)
		for name, c := range map[string]stampede.Codec{"plain": stampede.Msgpack, "s2": newCodec(b, nil, nil)} {
			data, err := c.Marshal(list)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%dKiB/%s/marshal", kib, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = c.Marshal(list)
				}
				b.ReportMetric(float64(len(raw))/float64(len(data)), "ratio")
			})
			b.Run(fmt.Sprintf("%dKiB/%s/unmarshal", kib, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					var v []item
					_ = c.Unmarshal(data, &v)
				}
			})
		}
	}
}
