package main

import (
	"cmp"
	"context"
	"slices"
)

// Report is the shop's popular and expensive page: what sells best.
type Report struct {
	Orders     int        `json:"orders"`
	Cents      int        `json:"cents"`
	Categories []Category `json:"categories"` // by revenue
}

// Category is a part of a Report.
type Category struct {
	Name  string `json:"name"`
	Cents int    `json:"cents"`
	Best  []Sold `json:"best"` // by revenue
}

// Sold is what a product has sold.
type Sold struct {
	Product  string `json:"product"`
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
	Cents    int    `json:"cents"`
}

// bestOf is how many products a report names for each category.
const bestOf = 3

// report makes the report, from every single order.
func (c *catalogue) report(ctx context.Context) (Report, error) {
	products, err := c.products()
	if err != nil {
		return Report{}, err
	}
	sold := make(map[string]*Sold, len(products))
	for id, p := range products {
		sold[id] = &Sold{Product: id, Name: p.Name}
	}
	var r Report
	err = c.eachOrder(ctx, func(o *Order) {
		r.Orders++
		for _, l := range o.Lines {
			s := sold[l.Product]
			s.Quantity += l.Quantity
			s.Cents += l.Quantity * l.Cents
		}
	})
	if err != nil {
		return Report{}, err
	}
	byName := make(map[string]*Category)
	for id, s := range sold {
		name := products[id].Category
		cat := byName[name]
		if cat == nil {
			cat = &Category{Name: name}
			byName[name] = cat
		}
		cat.Cents += s.Cents
		cat.Best = append(cat.Best, *s)
		r.Cents += s.Cents
	}
	for _, cat := range byName {
		slices.SortFunc(cat.Best, func(a, b Sold) int {
			return cmp.Or(cmp.Compare(b.Cents, a.Cents), cmp.Compare(a.Product, b.Product))
		})
		cat.Best = cat.Best[:min(bestOf, len(cat.Best))]
		r.Categories = append(r.Categories, *cat)
	}
	slices.SortFunc(r.Categories, func(a, b Category) int {
		return cmp.Or(cmp.Compare(b.Cents, a.Cents), cmp.Compare(a.Name, b.Name))
	})
	return r, nil
}
