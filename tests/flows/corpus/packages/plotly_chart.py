import plotly.express as px
import plotly.graph_objects as go

figure = px.scatter(x=[1, 2], y=[3, 4])
print(type(figure).__name__, figure.data[0].type)
go.Figure(go.Bar(x=["a"], y=[1])).write_html("chart.html", include_plotlyjs="cdn")
print(open("chart.html").read(6))
